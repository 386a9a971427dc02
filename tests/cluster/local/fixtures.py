"""Clusters as pytest fixtures, one per test run; a conftest.py imports the ones it wants.

A name carries the run's process id, so runs side by side do not meet, and a run that was killed is cleaned
up by the next one.
"""

import os
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.cluster.local.binaries import FULL_PROGRAMS, LIGHT_PROGRAMS, Program, missing_programs
from tests.cluster.local.cluster import Cluster, remove_abandoned, start_full, start_light
from tests.cluster.local.failure import ClusterError


@pytest.fixture(scope="session")
def light_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real API server with controllers and no node."""
    yield from _cluster_for_session(request, "light", start_light, LIGHT_PROGRAMS)


@pytest.fixture(scope="session")
def full_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A whole cluster, whose node runs pods."""
    yield from _cluster_for_session(request, "full", start_full, FULL_PROGRAMS)


def _cluster_for_session(
    request: pytest.FixtureRequest, kind: str, start: Callable[..., Cluster], programs: Iterable[Program]
) -> Iterator[Cluster]:
    _require_built(programs)
    remove_abandoned()
    try:
        cluster = start(f"test-{kind}-{os.getpid()}", owner_pid=os.getpid())
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    try:
        yield cluster
    finally:
        failed = request.session.testsfailed > 0
        cluster.stop(keep_logs=failed)
        if failed:
            print(f"\nThe logs of the {kind} cluster are kept in {cluster.log_dir}")


def _require_built(programs: Iterable[Program]) -> None:
    """A first build takes longer than a test may."""
    if missing := missing_programs(programs):
        names = ", ".join(program.name for program in missing)
        pytest.fail(f"not built yet: {names}. Run `python -m tests.cluster.local prepare`", pytrace=False)
