"""Mode SLO with the real engine on a real kubelet: up with the load and its reason, down, no answer cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.demo.chat import Connect, RequestFailed, read_metrics
from tests.demo.inside import InsideConnection
from tests.demo.service import ServiceRef
from tests.e2e.engine_client import SteadyClient, load, reach_service
from tests.e2e.stack import Stack, is_pod_ready, small_spec, wait_ready
from tests.e2e.waiting import stays_true, wait_until
from tests.install.paths import NAMESPACE

METRICS_PORT = 8081
LOOSE = {"ttftMilliseconds": 60_000, "tpotMilliseconds": 20_000}
"""Kept by the slowest of machines, so that the KV cache is what binds."""


def scaled_spec() -> dict[str, Any]:
    """One full-length sequence of cache, and places for many: three replicas of it fit on two cores."""
    return small_spec(revision="v1") | {
        "engine": {"maxModelLen": 512, "maxSequences": 64, "kvCache": {"forSequences": 1}},
        "resources": {"cpu": "400m"},
        "rollout": {"drainSeconds": 60},
        "autoscaling": {
            "mode": "SLO",
            "minReplicas": 1,
            "maxReplicas": 3,
            "slo": LOOSE,
            "scaleDown": {"stabilizationWindowSeconds": 15},
        },
    }


def autoscaling(service: ServiceRef) -> dict[str, Any]:
    said: dict[str, Any] = service.read()["status"]["autoscaling"]
    return said


def ready_pods(service: ServiceRef) -> list[dict[str, Any]]:
    return [pod for pod in service.pods() if is_pod_ready(pod)]


def wait_replicas(service: ServiceRef, number: int, seconds: float = 240) -> list[dict[str, Any]]:
    return wait_until(
        lambda: ready_pods(service),
        lambda pods: len(pods) == number and len(service.pods()) == number,
        seconds=seconds,
        what=f"{number} ready replicas",
    )


@contextmanager
def clients(connect: Connect, number: int) -> Iterator[Sequence[SteadyClient]]:
    with ExitStack() as running:
        yield [running.enter_context(one) for one in load(connect, "scaled", clients=number, max_tokens=24)]


def test_replicas_follow_the_load_and_what_binds_is_named(stack: Stack, namespace: str) -> None:
    service = stack.apply(namespace, "scaled", scaled_spec())
    wait_ready(service)
    assert len(service.pods()) == 1
    connect = reach_service(stack.cluster.netns, service)

    with clients(connect, 10) as first, clients(connect, 14) as second:
        wait_replicas(service, 3)
        said = wait_until(
            lambda: autoscaling(service),
            lambda now: now.get("demandMilliRPS", 0) > 0,
            seconds=90,
            what="the load in status",
        )
        assert said["desiredReplicas"] == 3
        assert said["limitedBy"] == "KVCache", said
        assert "req/s per replica" in said["message"]
        assert said["coldStartSeconds"] < 180, "measured, and no longer guessed"
        assert service.condition("SLOFeasible")["status"] == "True"
        restart_operator(stack, service)
    wait_until(service.pods, lambda pods: len(pods) == 1, seconds=600, what="one replica after the load")
    assert not [failure for client in (*first, *second) for failure in client.failures]
    assert autoscaling(service)["desiredReplicas"] == 1
    counts = [one["replicas"] for one in reversed(autoscaling(service)["recent"])]
    assert counts[-2:] == [2, 1], "one at a time"
    assert service.condition("Ready")["status"] == "True"


def restart_operator(stack: Stack, service: ServiceRef) -> None:
    """In the middle of the load: no pod comes or goes for it."""
    before = {pod["metadata"]["name"] for pod in service.pods()}
    recent = autoscaling(service)["recent"]
    operator = stack.operator_pod()["metadata"]["name"]
    stack.kubectl.run("delete", "pod", operator, "--namespace", NAMESPACE)
    wait_until(
        lambda: operator_metrics(stack),
        lambda now: "octavo_scaling_desired_replicas" in now,
        seconds=420,
        what="the new operator's first decision, on a processor that the engines keep busy",
    )
    stays_true(
        lambda: {pod["metadata"]["name"] for pod in service.pods()},
        lambda names: names == before,
        seconds=20,
    )
    assert autoscaling(service)["recent"] == recent


def operator_metrics(stack: Stack) -> dict[str, float]:
    """Empty while there is none that answers."""
    try:
        address = stack.operator_pod()["status"].get("podIP", "")
        return read_metrics(lambda: InsideConnection(stack.cluster.netns, address, METRICS_PORT, 10))
    except (RequestFailed, ValueError):
        return {}
