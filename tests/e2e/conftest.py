"""One cluster with Octavo installed for all end-to-end tests, and a namespace of its own for each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.images import push_images
from tests.cluster.local import Cluster
from tests.cluster.local.fixtures import full_cluster
from tests.demo.hub import start_hub
from tests.demo.installation import Images, ensure_namespace, install
from tests.demo.kubectl import Kubectl
from tests.demo.service import ServiceRef
from tests.e2e.engine_client import reach_service
from tests.e2e.stack import Stack, small_spec, wait_ready
from tests.install.paths import NAMESPACE

HERE = Path(__file__).parent
__all__ = ["full_cluster"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, and put the test that takes the cluster away behind all that use it."""
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.timeout(1800))
    ours.sort(key=lambda item: item.path.name == "test_teardown.py")
    items[:] = [item for item in items if HERE not in item.path.parents] + ours


@pytest.fixture(scope="session")
def stack(full_cluster: Cluster) -> Stack:
    """Octavo installed by its chart, with a hub that holds the sample model."""
    images = Images(**push_images(full_cluster))
    kubectl = Kubectl(program=full_cluster.bin_dir / "kubectl", kubeconfig=full_cluster.kubeconfig)
    hub = start_hub(full_cluster)
    ensure_namespace(kubectl, NAMESPACE)
    install(kubectl, images, hub_endpoint=hub.endpoint)
    return Stack(
        cluster=full_cluster, kubectl=kubectl, images=images, store=hub.store, hub_endpoint=hub.endpoint
    )


@pytest.fixture
def namespace(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace where only restricted pods may run; its pods are gone when the test ends."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    name = f"{words[:40].strip('-')}-{time.time_ns() % 100_000:05d}"
    ensure_namespace(stack.kubectl, name)
    yield name
    stack.remove_namespace(name)


@pytest.fixture(scope="module")
def bystander(stack: Stack) -> Iterator[ServiceRef]:
    """A service that serves through everything that happens to the others."""
    ensure_namespace(stack.kubectl, "bystander")
    service = stack.apply("bystander", "smollm2", small_spec(revision="v1"))
    wait_ready(service)
    reach_service(stack.cluster.netns, service)
    yield service
    stack.remove_namespace("bystander")
