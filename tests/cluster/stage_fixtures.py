"""Stages as pytest fixtures: a namespace for each test, with and without the operator running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cluster.local.cluster import Cluster
from tests.cluster.stage import Stage, install_definition
from tests.support.model_hub import HubStore, ModelHub


@pytest.fixture(scope="session")
def defined_cluster(light_cluster: Cluster) -> Cluster:
    install_definition(light_cluster)
    return light_cluster


@pytest.fixture
def quiet_stage(defined_cluster: Cluster, tmp_path: Path) -> Iterator[Stage]:
    """Without the operator running."""
    store = HubStore(tmp_path / "hub")
    with ModelHub(store) as hub:
        stage = Stage(defined_cluster, f"test-{uuid4().hex[:8]}", store, hub, tmp_path)
        stage.open()
        try:
            yield stage
        finally:
            stage.close()
            print(stage.log())


@pytest.fixture
def stage(quiet_stage: Stage) -> Stage:
    quiet_stage.start_operator()
    return quiet_stage
