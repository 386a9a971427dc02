"""Mode SLO with the real engine on a real kubelet: up with the load and its reason, down, no answer cut."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.demo.chat import Connect, post_json, read_metrics
from tests.demo.service import ServiceRef
from tests.e2e.engine_client import PORT, connect_to_pod, reach_service
from tests.e2e.stack import Stack, is_pod_ready, small_spec, wait_ready
from tests.e2e.traffic import Crowd, crowd_on
from tests.e2e.waiting import stays_true, wait_until
from tests.install.paths import NAMESPACE

NAME = "scaled"
LOOSE = {"ttftMilliseconds": 600_000, "tpotMilliseconds": 20_000}
"""Kept by the slowest of machines, so that the KV cache is what binds."""
USUAL_TOKENS = 48
"""Of an answer; what an engine's admission comes to expect."""
LONG_TOKENS = 200
NUM_LONG = 3
"""Half as much again as the cache of one replica, and few requests: they are no load that needs a third."""
MOST_CLIENTS = 60
CLIMB_SECONDS = 600
"""Nothing is given up while the load still grows, however slow the machine."""
SECONDS_TO_SHOW = 3
"""What one client more adds to the load; the operator looks every ten seconds."""
REST_RATIO = 3.0
"""Where many sequences are hardly faster than one, a single client that never rests fills a replica."""
MEMORY_SHARE = 0.85
"""Of the cache that is planned with before anything was preempted."""


def scaled_spec(*, least: int = 1, most: int = 3, window: int = 15) -> dict[str, Any]:
    """One full-length sequence of cache, and places for many: three replicas of it fit on two cores."""
    return small_spec(revision="v1") | {
        "engine": {"maxModelLen": 512, "maxSequences": 64, "kvCache": {"forSequences": 1}},
        "resources": {"cpu": "400m"},
        "rollout": {"drainSeconds": 60},
        "autoscaling": {
            "mode": "SLO",
            "minReplicas": least,
            "maxReplicas": most,
            "slo": LOOSE,
            "scaleDown": {"stabilizationWindowSeconds": window},
        },
    }


def autoscaling(service: ServiceRef) -> dict[str, Any]:
    said: dict[str, Any] = service.read()["status"].get("autoscaling", {})
    return said


def changes(service: ServiceRef) -> list[tuple[int, str]]:
    """Replicas and reason of the latest changes, oldest first."""
    return [(one["replicas"], one["reason"]) for one in reversed(autoscaling(service).get("recent", ()))]


def pod_names(service: ServiceRef) -> set[str]:
    return {pod["metadata"]["name"] for pod in service.pods()}


def ready_pods(service: ServiceRef) -> list[dict[str, Any]]:
    return [pod for pod in service.pods() if is_pod_ready(pod)]


def wait_replicas(service: ServiceRef, number: int, seconds: float = 300) -> list[dict[str, Any]]:
    return wait_until(
        lambda: ready_pods(service),
        lambda pods: len(pods) >= number,
        seconds=seconds,
        what=f"{number} ready replicas",
    )


def test_replicas_follow_the_load_one_by_one_and_never_fall_while_engines_cannot_be_read(
    stack: Stack, namespace: str
) -> None:
    service = stack.apply(namespace, NAME, scaled_spec(most=1, window=CLIMB_SECONDS))
    wait_ready(service)
    connect = reach_service(stack.cluster.netns, service)

    with crowd_on(connect, NAME, max_tokens=USUAL_TOKENS) as crowd:
        learn_what_one_client_needs(stack, crowd)
        stack.apply(namespace, NAME, scaled_spec(window=CLIMB_SECONDS))
        for number in (2, 3):
            grow_until(service, crowd, number)
            wait_replicas(service, number)
        assert changes(service) == [(2, "LoadAboveTarget"), (3, "LoadAboveTarget")]
        said = wait_until(
            lambda: autoscaling(service),
            lambda now: now.get("demandMilliRPS", 0) > 0,
            seconds=90,
            what="the load in status",
        )
        assert said["desiredReplicas"] == 3
        assert said["limitedBy"] == "KVCache", said
        assert "req/s per replica (KVCache-bound at " in said["message"]
        assert said["coldStartSeconds"] < 180, "measured, and no longer guessed"
        assert service.condition("SLOFeasible")["status"] == "True"
        restart_operator(stack, service)
        stack.apply(namespace, NAME, scaled_spec())
        with metrics_path_cut(stack):
            keep_replicas_while_blind(service, crowd)
        wait_until(service.pods, lambda pods: len(pods) == 1, seconds=600, what="one replica after the load")
        crowd.clients[0].await_answer(180)
    assert not crowd.failures
    assert changes(service)[-2:] == [(2, "LoadBelowTarget"), (1, "LoadBelowTarget")], "one at a time"
    assert service.condition("Ready")["status"] == "True"
    add_one_when_sequences_are_preempted(stack, service, namespace)


def learn_what_one_client_needs(stack: Stack, crowd: Crowd) -> None:
    """One replica. Before any request was measured, a first guess at a slow machine may say more."""
    crowd.grow()
    crowd.rest(REST_RATIO)
    wait_until(
        stack.scaling_figures,
        lambda now: now.get("demand_requests_per_second", 0) > 0 and now["needed_replicas"] == 1,
        seconds=420,
        what="one client needs one replica",
    )
    crowd.rest(0.0)


def grow_until(service: ServiceRef, crowd: Crowd, number: int) -> None:
    """One client more at a time, so that a replica more is wanted before the next one is."""
    for _ in range(MOST_CLIENTS):
        if autoscaling(service).get("desiredReplicas", 0) >= number:
            return
        crowd.grow()
        time.sleep(SECONDS_TO_SHOW)
    raise AssertionError(f"{len(crowd.clients)} clients, and not {number} replicas: {autoscaling(service)}")


def restart_operator(stack: Stack, service: ServiceRef) -> None:
    """In the middle of the load: no pod comes or goes for it."""
    before, recent = pod_names(service), autoscaling(service)["recent"]
    operator = stack.operator_pod()["metadata"]["name"]
    stack.kubectl.run("delete", "pod", operator, "--namespace", NAMESPACE)
    wait_until(
        stack.scaling_figures,
        lambda now: "desired_replicas" in now,
        seconds=420,
        what="the new operator's first decision, on a processor that the engines keep busy",
    )
    stays_true(lambda: pod_names(service), lambda names: names == before, seconds=20)
    assert autoscaling(service)["recent"] == recent


@contextmanager
def metrics_path_cut(stack: Stack) -> Iterator[None]:
    """The operator reaches no engine, while everybody else does."""
    to_engines = ("--source", stack.operator_address(), "--protocol", "tcp", "--destination-port", str(PORT))
    rule = ("FORWARD", *to_engines, "--jump", "DROP")
    inside = (*stack.cluster.enter, "iptables", "--wait")
    subprocess.run([*inside, "--insert", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "--delete", *rule], check=True)


def keep_replicas_while_blind(service: ServiceRef, crowd: Crowd) -> None:
    """The load falls unseen, for longer than it takes the replicas to fall when it is seen."""
    before = pod_names(service)
    blind = wait_until(
        lambda: autoscaling(service),
        lambda now: now["reason"] == "MetricsMissing",
        seconds=120,
        what="the blackout in status",
    )
    assert service.condition("ScalingActive")["status"] == "False"
    crowd.rest(REST_RATIO)
    crowd.shrink(1)
    window = max(15, 1.5 * blind["coldStartSeconds"])
    stays_true(lambda: pod_names(service), lambda names: names == before, seconds=60 + window)
    assert autoscaling(service)["desiredReplicas"] == len(before)


def add_one_when_sequences_are_preempted(stack: Stack, service: ServiceRef, namespace: str) -> None:
    """One of two replicas gets answers that are much longer than those it has learned to expect.

    Two replicas have room for all of them, so it is not the load that adds the third.
    """
    (seasoned,) = ready_pods(service)
    stack.apply(namespace, NAME, scaled_spec(least=2))
    wait_replicas(service, 2)
    connect = connect_to_pod(stack.cluster.netns, seasoned, timeout=600)
    with ThreadPoolExecutor(NUM_LONG) as clients:
        answers = list(clients.map(lambda number: ask_for_long(connect, number), range(NUM_LONG)))
    assert [one["usage"]["completion_tokens"] for one in answers] == [LONG_TOKENS] * NUM_LONG
    assert read_metrics(connect)["vllm:num_preemptions_total"] > 0

    said = wait_until(
        lambda: autoscaling(service), lambda now: now["desiredReplicas"] == 3, seconds=60, what="one more"
    )
    assert changes(service)[-1] == (3, "PreemptionBrake"), said
    assert "one more, because sequences are preempted" in said["recent"][0]["message"]
    assert stack.scaling_figures()["memory_share_ratio"] < MEMORY_SHARE


def ask_for_long(connect: Connect, number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{number}: tell me a long story."}]
    body = {"model": NAME, "messages": messages, "max_tokens": LONG_TOKENS, "ignore_eos": True}
    return post_json(connect, "/v1/chat/completions", body)
