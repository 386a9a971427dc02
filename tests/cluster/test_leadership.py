"""Two operators at one API server: one acts, the other waits, and none acts beside the other."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from octavo_operator.decide.leadership import LEASE_SECONDS
from octavo_operator.shell.__main__ import LEASE_LOST_EXIT_CODE
from tests.cluster.stage import REPO, Stage, free_port, wait_for

pytestmark = pytest.mark.cluster

LEASE = "octavo-operator"


def holder(stage: Stage) -> str:
    body = stage.client.get(stage.path("leases", LEASE)).raise_for_status().json()
    return str(body["spec"]["holderIdentity"])


def wait_holder(stage: Stage, name: str, *, seconds: float = LEASE_SECONDS + 15) -> None:
    wait_for(lambda: holder(stage) == name, f"{name} to hold the Lease", seconds=seconds)


def start_second(stage: Stage) -> subprocess.Popen[bytes]:
    """Beside the first, which is returned; from now on the stage's own is the second."""
    assert stage.process is not None
    first = stage.process
    stage.identity, stage.health_port, stage.metrics_port = "second", free_port(), free_port()
    stage.start_operator()
    wait_for(lambda: "first holds the Lease" in stage.log(), "the second to wait")
    return first


@pytest.fixture
def first(stage: Stage) -> Iterator[subprocess.Popen[bytes]]:
    wait_for(lambda: stage.client.get(stage.path("leases", LEASE)).is_success, "the Lease")
    process = start_second(stage)
    yield process
    process.kill()
    process.wait()


def test_second_operator_waits_and_goes_on_where_the_first_ended(
    stage: Stage, first: subprocess.Popen[bytes]
) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    assert holder(stage) == "first"
    first.terminate()
    assert first.wait(timeout=15) == 0
    began = time.monotonic()
    wait_holder(stage, "second", seconds=10)
    stage.apply(replicas=2)
    stage.wait_pods(commit, 2)
    assert time.monotonic() - began < LEASE_SECONDS, "it was given back, not waited for"


def test_second_operator_takes_over_from_a_killed_one(stage: Stage, first: subprocess.Popen[bytes]) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    first.kill()
    stage.apply(replicas=2)
    wait_holder(stage, "second")
    stage.wait_pods(commit, 2)


def test_operator_that_was_frozen_ends_when_another_has_taken_over(
    stage: Stage, first: subprocess.Popen[bytes]
) -> None:
    """It would go on with what it knew a minute ago."""
    commit = stage.add_commit("first")
    stage.serve(commit)
    first.send_signal(signal.SIGSTOP)
    wait_holder(stage, "second")
    stage.apply(model={"uri": f"hf://{REPO}"}, replicas=2)
    stage.wait_pods(commit, 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=15) == LEASE_LOST_EXIT_CODE
    assert holder(stage) == "second"
    assert len(stage.pods(commit)) == 2
