"""Stages as pytest fixtures: a namespace for each test, with and without the operator running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.cluster.local.cluster import Cluster
from tests.cluster.local.definitions import ALL_DEFINITIONS, missing_definitions
from tests.cluster.stage import GROUPS, Stage, install_definition, wait_for
from tests.support.model_hub import HubStore, ModelHub


@pytest.fixture(scope="session")
def defined_cluster(light_cluster: Cluster) -> Cluster:
    install_definition(light_cluster)
    return light_cluster


@pytest.fixture
def gateway_definitions(defined_cluster: Cluster) -> Iterator[Cluster]:
    """Gateway API and its Inference Extension, for one test; the others see a cluster without."""
    if missing := missing_definitions():
        names = ", ".join(one.module for one in missing)
        pytest.fail(f"not fetched yet: {names}. Run `python -m tests.cluster.local binaries`", pytrace=False)
    install_gateway_definitions(defined_cluster)
    yield defined_cluster
    remove_gateway_definitions(defined_cluster)


def install_gateway_definitions(cluster: Cluster) -> None:
    for path in gateway_files():
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    for plural in ("httproutes", "inferencepools"):
        path = f"{GROUPS[plural]}/{plural}"
        wait_for(lambda path=path: cluster.api().exists(path), f"{plural} to be served")


def remove_gateway_definitions(cluster: Cluster) -> None:
    for path in gateway_files():
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(path))


def gateway_files() -> list[Path]:
    return [path for one in ALL_DEFINITIONS for path in one.paths]


@pytest.fixture
def make_stage(defined_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes stages, without the operator running; takes what Stage takes."""
    store = HubStore(tmp_path / "hub")
    with ModelHub(store) as hub, ExitStack() as opened:

        def make(**options: Any) -> Stage:
            stage = Stage(defined_cluster, f"test-{uuid4().hex[:8]}", store, hub, tmp_path, **options)
            stage.open()
            opened.callback(lambda: print(stage.log()))
            opened.callback(stage.close)
            return stage

        yield make


@pytest.fixture
def quiet_stage(make_stage: Callable[..., Stage]) -> Stage:
    """Without the operator running."""
    return make_stage()


@pytest.fixture
def stage(quiet_stage: Stage) -> Stage:
    quiet_stage.start_operator()
    return quiet_stage
