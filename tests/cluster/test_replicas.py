"""Who chooses the replicas: the scale subresource, or the operator by what its engines say."""

from __future__ import annotations

import json
import signal
import time

import httpx
import pytest

from tests.cluster.busy_engine import BusyEngine
from tests.cluster.stage import Body, Stage, wait_for

pytestmark = pytest.mark.cluster

SLO = {"ttftMilliseconds": 5000, "tpotMilliseconds": 1000}
"""What the engine of these tests keeps."""


def busy_engine(stage: Stage, commit: str) -> BusyEngine:
    """What each pod of the commit says."""
    engine = BusyEngine()
    stage.engines.script(commit).metrics = engine.page
    return engine


def replicas_of(stage: Stage) -> int:
    (deployment,) = stage.list("deployments")
    replicas: int = deployment["spec"]["replicas"]
    return replicas


def recommendation(stage: Stage) -> httpx.Response:
    url = f"http://127.0.0.1:{stage.metrics_port}/recommendations/{stage.namespace}/tiny"
    return httpx.get(url, trust_env=False)


def patch(stage: Stage, spec: str) -> None:
    stage.kubectl("patch", "lsvc", "tiny", "--type=merge", "-p", f'{{"spec": {spec}}}')


def desired(stage: Stage) -> int:
    number: int = stage.service()["status"]["autoscaling"]["desiredReplicas"]
    return number


def test_scale_subresource_sets_the_replicas_under_external(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit, autoscaling={"mode": "External", "maxReplicas": 4})

    stage.kubectl("scale", "lsvc", "tiny", "--replicas=3")
    stage.make_ready(stage.wait_pods(commit, 3))

    wait_for(lambda: stage.service()["status"]["readyReplicas"] == 3, "three ready replicas in status")
    assert stage.condition("Ready")["status"] == "True"
    assert stage.condition("ScalingActive")["reason"] == "External"


def test_scaled_number_outlives_edits_restarts_and_the_end_of_autoscaling(stage: Stage) -> None:
    """An operator that writes its own number at each pass fights whoever scales the service."""
    commit = stage.add_commit("first")
    stage.serve(commit, autoscaling={"mode": "External", "maxReplicas": 5})
    stage.kubectl("scale", "lsvc", "tiny", "--replicas=3")
    stage.make_ready(stage.wait_pods(commit, 3))

    patch(stage, '{"rollout": {"revisionHistoryLimit": 3}}')
    stage.wait_condition("Ready", "True")
    assert replicas_of(stage) == 3
    stage.stop_operator()
    stage.start_operator()
    time.sleep(3)
    assert replicas_of(stage) == 3
    patch(stage, '{"autoscaling": null, "replicas": 2}')
    stage.wait_pods(commit, 2)
    assert replicas_of(stage) == 2


def test_recommendation_is_published_and_the_number_of_spec_stands(stage: Stage) -> None:
    commit = stage.add_commit("first")
    engine = busy_engine(stage, commit)
    autoscaling = {"mode": "Recommend", "maxReplicas": 4, "slo": SLO}
    stage.serve(commit, autoscaling=autoscaling)
    engine.rate = 5.0

    wait_for(lambda: desired(stage) == 4, "a recommendation of four")
    assert replicas_of(stage) == 1
    answer = recommendation(stage)
    assert (answer.status_code, answer.json()["desiredReplicas"]) == (200, 4)
    assert answer.json()["mode"] == "Recommend"
    assert "Scaled" not in {event["reason"] for event in stage.list("events")}
    assert stage.service()["status"]["autoscaling"]["reason"] == "Recommended"


def test_a_storm_of_preemptions_adds_one_replica_and_says_so(stage: Stage) -> None:
    commit = stage.add_commit("first")
    engine = busy_engine(stage, commit)
    stage.serve(commit, autoscaling={"mode": "SLO", "maxReplicas": 4, "slo": SLO})
    wait_for(lambda: "limitedBy" in stage.service()["status"]["autoscaling"], "the first round")
    assert replicas_of(stage) == 1
    engine.rate, engine.preempted = 0.05, 2.0

    wait_for(lambda: replicas_of(stage) == 2, "one more")
    said, *_ = wait_for(
        lambda: stage.service()["status"]["autoscaling"].get("recent"), "the change in status"
    )
    assert (said["reason"], said["replicas"]) == ("PreemptionBrake", 2)
    time.sleep(15)
    assert replicas_of(stage) == 2, "the one on its way is not ready yet"


def test_service_under_slo_grows_with_its_load_and_shrinks_after(stage: Stage) -> None:
    commit = stage.add_commit("first")
    engine = busy_engine(stage, commit)
    autoscaling = {
        "mode": "SLO",
        "maxReplicas": 3,
        "slo": SLO,
        "scaleDown": {"stabilizationWindowSeconds": 0, "maxPercent": 100},
        "fallback": {"replicas": 2},
    }
    stage.serve(commit, autoscaling=autoscaling)
    assert stage.condition("Ready")["status"] == "True"

    engine.rate = 5.0
    stage.make_ready(stage.wait_pods(commit, 3))
    engine.rate = 5.0 / 3

    def three() -> Body | None:
        said: Body = stage.service()["status"]["autoscaling"]
        return said if said["desiredReplicas"] == 3 else None

    status = wait_for(three, "three replicas in status")
    assert "req/s per replica" in status["message"]
    assert status["limitedBy"] in ("TPOT", "TTFT", "KVCache", "MaxSequences")
    stage.wait_condition("CapacityLimited", "True", reason="AtMaximum")
    assert_scale_change_is_told(stage, "to 3. 3 replicas: ")
    restart_keeps_all(stage)

    engine.rate = 0.0
    pods = {pod["metadata"]["name"] for pod in stage.pods(commit)}
    try:
        wait_for(lambda: len(stage.pods(commit)) == 1, "one pod", seconds=200)
    finally:
        print(json.dumps(stage.service()["status"]["autoscaling"], indent=2))
    (left,) = stage.pods(commit)
    assert left["metadata"]["name"] == max(pods), "victims of equal load are taken by name, and marked"
    assert_scale_change_is_told(stage, "to 1. 1 replica: ")
    assert stage.condition("Ready")["status"] == "True"

    stage.engines.script(commit).metrics = ""
    wait_for(
        lambda: stage.service()["status"]["autoscaling"]["reason"] == "MetricsMissing",
        "the blackout to be told",
    )
    assert recommendation(stage).status_code == 503
    assert stage.condition("ScalingActive")["status"] == "False"
    assert replicas_of(stage) == 1


def assert_scale_change_is_told(stage: Stage, words: str) -> None:
    def read() -> bool:
        return any(words in event["message"] for event in stage.list("events"))

    wait_for(read, f"an Event {words!r}")
    metrics = httpx.get(f"http://127.0.0.1:{stage.metrics_port}/metrics", trust_env=False).text
    place = f'namespace="{stage.namespace}",service="tiny"'
    assert f"octavo_scaling_desired_replicas{{{place}}}" in metrics
    assert f"octavo_scaling_headroom_ratio{{{place}}}" in metrics


def restart_keeps_all(stage: Stage) -> None:
    """Killed in the middle: the number, the words and what was learned are as before."""

    def memory() -> str:
        found = [one for one in stage.list("configmaps") if one["metadata"]["name"] == "tiny-scaling"]
        return found[0]["data"]["memory.json"] if found else ""

    wait_for(memory, "the memory", seconds=90)
    before = stage.service()["status"]["autoscaling"]
    stage.stop_operator(signal.SIGKILL)
    stage.start_operator()
    for _ in range(25):
        assert replicas_of(stage) == 3
        time.sleep(1)
    after = stage.service()["status"]["autoscaling"]
    assert after["recent"] == before["recent"]
    assert json.loads(memory())["state"]["learned"]
