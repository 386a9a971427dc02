"""Mode SLO on the real cluster: load raises the replicas, and its end lowers them."""

from __future__ import annotations

from contextlib import ExitStack

from tests.e2e.engine_client import connect_to_service, load
from tests.e2e.stack import is_pod_ready, small_spec, wait_ready
from tests.e2e.waiting import wait_until


def test_load_raises_the_replicas_and_its_end_lowers_them(stack, namespace) -> None:
    spec = small_spec(revision="v1") | {
        "engine": {"maxModelLen": 512, "maxSequences": 2},
        "rollout": {"drainSeconds": 60},
        "autoscaling": {
            "mode": "SLO",
            "minReplicas": 1,
            "maxReplicas": 2,
            "scaleDown": {"stabilizationWindowSeconds": 15},
        },
    }
    service = stack.apply(namespace, "scaled", spec)
    wait_ready(service)
    assert len(service.pods()) == 1
    connect = connect_to_service(stack.cluster.netns, service)

    with ExitStack() as running:
        clients = [running.enter_context(one) for one in load(connect, "scaled", clients=8, max_tokens=24)]
        wait_until(
            lambda: [pod for pod in service.pods() if is_pod_ready(pod)],
            lambda ready: len(ready) == 2,
            seconds=240,
            what="two ready replicas under load",
        )
        assert service.condition("Ready")["status"] == "True"
    wait_until(service.pods, lambda pods: len(pods) == 1, seconds=240, what="one replica after the load")
    assert not [failure for client in clients for failure in client.failures]
    assert service.read()["status"]["autoscaling"]["desiredReplicas"] == 1
