"""Rollouts on a real API server: gates, strategies, failures that are remembered, kills in the middle.

The engines are scripted; pods become ready when the test says so.
"""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cluster.stage import REPO, Stage, wait_for

pytestmark = pytest.mark.cluster

LABEL_REVISION = "octavo.dev/revision"
MODEL = {"uri": f"hf://{REPO}"}


def at(commit: str) -> dict[str, str]:
    return {**MODEL, "revision": commit}


def selector(stage: Stage) -> dict[str, str]:
    body = stage.client.get(stage.path("services", "tiny")).raise_for_status().json()
    chosen: dict[str, str] = body["spec"]["selector"]
    return chosen


def serving_commit(stage: Stage) -> str:
    """Of the revision that the Service selects; empty while it selects those of several."""
    revision = selector(stage).get(LABEL_REVISION, "")
    records = [one for one in stage.list("controllerrevisions") if one["data"]["hash"] == revision]
    return str(records[0]["data"]["commit"]) if records else ""


def give_probes(stage: Stage, *probes: dict[str, Any]) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probes"},
        "data": {"probes.json": json.dumps(probes)},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def quality(**fields: object) -> dict[str, Any]:
    return {"gate": {"quality": {"configMapRef": {"name": "probes"}, **fields}}}


def status(stage: Stage) -> dict[str, Any]:
    told: dict[str, Any] = stage.service()["status"]
    return told


def shared_status(stage: Stage) -> dict[str, Any] | None:
    told: dict[str, Any] = status(stage).get("rollout", {})
    return told if told.get("canaryWeightPercent") else None


def test_candidate_that_loaded_another_commit_is_given_up_and_not_tried_again_by_a_restart(
    stage: Stage,
) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    stage.serve(first, model=at(first))
    (serving,) = stage.pods(first)
    stage.engines.script(second).loaded = first

    stage.apply(model=at(second))
    stage.make_ready(stage.wait_pods(second))

    ready = stage.wait_condition("Ready", "False", reason="LoadGateFailed")
    assert f"loaded commit {first}" in ready["message"]
    stage.wait_pods(second, 0)
    assert stage.condition("Available")["status"] == "True"
    assert stage.condition("Stalled")["status"] == "True"
    assert stage.condition("RolloutGatePassed")["status"] == "False"
    assert [pod["metadata"]["uid"] for pod in stage.pods(first)] == [serving["metadata"]["uid"]]
    assert serving_commit(stage) == first
    assert status(stage)["lastKnownGood"]["resolvedRevision"] == first
    assert status(stage)["lastFailure"]["reason"] == "LoadGateFailed"

    stage.stop_operator(signal.SIGKILL)
    stage.engines.script(second).loaded = ""
    stage.start_operator()
    stage.apply("other", model=at(first))
    wait_for(lambda: len(stage.pods(first)) == 2, "the restarted operator to work")
    assert stage.pods(second) == []

    stage.apply(model=at(first))
    stage.wait_condition("Ready", "True")
    stage.apply(model=at(second))
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")
    assert serving_commit(stage) == second


def test_candidate_gets_no_request_before_its_probes_were_answered_well(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    give_probes(stage, {"prompt": "Capital of France?", "expect": "Paris"}, {"prompt": "Once"})
    stage.engines.script(first).answers = {"Capital of France?": "Paris", "Once": "upon a time"}
    stage.serve(first, model=at(first), rollout=quality())
    assert "1 of 1 probes match" in stage.condition("RolloutGatePassed")["message"]

    stage.engines.script(second).answers = {"Capital of France?": "Paris", "Once": "more"}
    stage.apply(model=at(second), rollout=quality())
    (candidate,) = stage.wait_pods(second)
    own = candidate["metadata"]["labels"][LABEL_REVISION]
    wait_for(lambda: stage.client.get(stage.path("services", f"tiny-{own}")).is_success, "its own Service")
    stage.make_ready([candidate])
    ready = stage.wait_condition("Ready", "False", reason="QualityGateFailed")
    assert "1 of 2 probes match" in ready["message"]
    assert "answered 'upon a time', got 'more'" in ready["message"]
    assert serving_commit(stage) == first
    wait_for(lambda: stage.client.get(stage.path("services", f"tiny-{own}")).status_code == 404, "it to go")

    stage.engines.script(second).answers["Once"] = "upon a time"
    stage.apply(model=at(second), rollout=quality(minMatchPercent=97))
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")
    assert serving_commit(stage) == second
    assert "2 of 2 probes match" in status(stage)["lastKnownGood"]["evidence"]


def test_malformed_probes_are_told_and_read_again_when_they_are_mended(stage: Stage) -> None:
    first = stage.add_commit("first")
    give_probes(stage, {"prompt": "Capital of France?", "expects": "Paris"})
    stage.apply(model=at(first), rollout=quality())
    stage.make_ready(stage.wait_pods(first))
    told = stage.wait_condition("RolloutGatePassed", "Unknown", reason="ProbesInvalid")
    assert "ConfigMap probes: probes.json.0.expects" in told["message"]
    assert stage.condition("Available")["status"] == "False"

    give_probes(stage, {"prompt": "Capital of France?", "expect": first})
    stage.wait_condition("Ready", "True")


def test_canary_shares_by_replicas_goes_on_after_a_kill_and_takes_over(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    steps = [{"weightPercent": 20, "durationSeconds": 5}, {"weightPercent": 60, "durationSeconds": 2}]
    rollout = {"strategy": "Canary", "canarySteps": steps}
    stage.apply(model=at(first), replicas=2, rollout=rollout)
    stage.make_ready(stage.wait_pods(first, 2))
    stage.wait_condition("Ready", "True")

    stage.apply(model=at(second), replicas=2, rollout=rollout)
    stage.make_ready(stage.wait_pods(second))
    wait_for(lambda: LABEL_REVISION not in selector(stage), "both to share the Service")
    told = wait_for(lambda: shared_status(stage), "the share in status, which is written after the Service")
    assert (told["strategy"], told["step"], told["canaryWeightPercent"]) == ("Canary", "Canary1", 33)
    assert "really 33 %" in told["message"]
    stage.stop_operator(signal.SIGKILL)
    stage.start_operator()

    stage.make_ready(stage.wait_pods(second, 2)[1:])
    stage.make_ready(stage.wait_pods(second, 2))
    stage.wait_condition("Ready", "True")
    assert serving_commit(stage) == second
    stage.wait_pods(first, 0)
    assert "rollout" not in status(stage)


def page(in_time: int, total: int) -> str:
    lines = []
    for name in ("octavo_ttft_seconds", "octavo_request_tpot_seconds"):
        lines.append(f"# TYPE {name} histogram")
        lines += [f'{name}_bucket{{le="0.05"}} {in_time}', f'{name}_bucket{{le="+Inf"}} {total}']
    return "\n".join(lines) + "\n"


def test_canary_that_is_too_slow_loses_its_share_and_is_given_up(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    gate = {"slo": {"minRequests": 50}}
    rollout = {
        "strategy": "Canary",
        "canarySteps": [{"weightPercent": 50, "durationSeconds": 6}],
        "gate": gate,
    }
    stage.engines.script(first).metrics = page(10, 10)
    stage.engines.script(second).metrics = page(0, 0)
    stage.serve(first, model=at(first), rollout=rollout)
    stage.apply(model=at(second), rollout=rollout)
    stage.make_ready(stage.wait_pods(second))
    wait_for(lambda: (second, "/metrics") in stage.engines.asked, "the step to begin")
    time.sleep(1)
    stage.engines.script(first).metrics = page(1000, 1010)
    stage.engines.script(second).metrics = page(60, 100)

    ready = stage.wait_condition("Ready", "False", reason="SloGateFailed")
    assert "60.0 % of 100 against 99.0 % of 1000" in ready["message"]
    assert serving_commit(stage) == first
    stage.wait_pods(second, 0)


def test_exchange_in_place_stops_before_it_starts_and_brings_back_what_was(stage: Stage) -> None:
    first, second, third = (stage.add_commit(word) for word in ("first", "second", "third"))
    rollout = {"strategy": "InPlace"}
    stage.serve(first, model=at(first), rollout=rollout)

    stage.apply(model=at(second), rollout=rollout)
    (candidate,) = stage.wait_pods(second)
    assert stage.pods(first) == []
    ready = stage.wait_condition("Ready", "False", reason="RolloutProgressing")
    assert "nothing answers until it is ready" in ready["message"]
    assert stage.condition("Available")["status"] == "False"
    stage.make_ready([candidate])
    stage.wait_condition("Ready", "True")

    stage.apply(model=at(third), rollout=rollout)
    (broken,) = stage.wait_pods(third)
    assert stage.pods(second) == []
    words = json.dumps({"reason": "DigestMismatch", "message": "note.txt: want aa, have bb"})
    stage.fail_pod(broken, container="fetch", exit_code=3, message=words)
    stage.make_ready(stage.wait_pods(second))
    stage.wait_pods(third, 0)
    stage.wait_condition("Available", "True")
    ready = stage.wait_condition("Ready", "False", reason="DigestMismatch")
    assert "want aa, have bb" in ready["message"]
    assert serving_commit(stage) == second


def test_auto_exchanges_when_no_node_takes_the_candidate_for_a_minute(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    stage.serve(first, model=at(first))
    stage.apply(model=at(second))
    (waiting,) = stage.wait_pods(second)
    since = datetime.now(UTC) - timedelta(seconds=55)
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    stage.write_pod_status(waiting, {"phase": "Pending", "conditions": [unschedulable]})
    stage.wait_condition("Ready", "False", reason="Unschedulable")
    assert len(stage.pods(first)) == 1

    stage.wait_pods(first, 0)
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")
    assert serving_commit(stage) == second


def test_suspended_service_is_left_alone_until_it_goes_on(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    stage.serve(first, model=at(first))
    stage.apply(model=at(second), suspend=True)
    stage.wait_condition("Suspended", "True")
    before = {
        body["metadata"]["uid"]: body["metadata"]["resourceVersion"]
        for kind in ("deployments", "services", "configmaps", "controllerrevisions")
        for body in stage.list(kind, "app.kubernetes.io/managed-by=octavo")
    }
    (deployment,) = stage.list("deployments")
    stage.kubectl("scale", "deployment", deployment["metadata"]["name"], "--replicas=3")
    stage.wait_pods(first, 3)
    assert stage.pods(second) == []
    assert stage.condition("Available")["status"] == "True"
    after = [
        body["metadata"]["uid"]
        for kind in ("deployments", "services", "configmaps", "controllerrevisions")
        for body in stage.list(kind, "app.kubernetes.io/managed-by=octavo")
    ]
    assert sorted(after) == sorted(before)

    stage.apply(model=at(second))
    stage.wait_pods(first, 1)
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")


def test_revert_in_mid_exchange_deletes_no_pod_of_what_serves(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    rollout = {"strategy": "InPlace"}
    stage.apply(model=at(first), replicas=3, rollout=rollout)
    stage.make_ready(stage.wait_pods(first, 3))
    stage.wait_condition("Ready", "True")

    stage.apply(model=at(second), replicas=3, rollout=rollout)
    stage.make_ready(stage.wait_pods(second))
    wait_for(lambda: len(stage.pods(first)) == 1, "two of three to be exchanged")
    left = {pod["metadata"]["uid"] for pod in stage.pods(first)}
    stage.apply(model=at(first), replicas=3, rollout=rollout)
    for _ in range(40):
        pods = stage.pods(first)
        assert left <= {pod["metadata"]["uid"] for pod in pods}
        stage.make_ready([pod for pod in pods if "podIP" not in pod["status"]])
        if len(pods) == 3 and not stage.pods(second):
            break
        time.sleep(0.5)
    stage.wait_condition("Ready", "True")
    assert len(stage.pods(first)) == 3
    assert serving_commit(stage) == first


def test_canary_with_a_route_divides_the_requests_exactly(gateway_definitions: object, stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    steps = [{"weightPercent": 7, "durationSeconds": 4}]
    changes: dict[str, Any] = {
        "rollout": {"strategy": "Canary", "canarySteps": steps},
        "routing": {"httpRoute": {"parentRefs": [{"name": "public"}]}},
    }
    stage.serve(first, model=at(first), **changes)
    old = status(stage)["currentRevision"]

    def weights() -> dict[str, int]:
        (route,) = stage.list("httproutes")
        return {one["name"]: one["weight"] for one in route["spec"]["rules"][0]["backendRefs"]}

    wait_for(lambda: stage.list("httproutes") and weights() == {f"tiny-{old}": 100}, "the route")
    stage.apply(model=at(second), **changes)
    (candidate,) = stage.wait_pods(second)
    new = candidate["metadata"]["labels"][LABEL_REVISION]
    stage.make_ready([candidate])
    wait_for(lambda: weights() == {f"tiny-{old}": 93, f"tiny-{new}": 7}, "the share on the route")
    assert selector(stage)[LABEL_REVISION] == old
    wait_for(lambda: status(stage)["rollout"]["canaryWeightPercent"] == 7, "the share in status")
    wait_for(lambda: weights() == {f"tiny-{new}": 100}, "all of the requests")
    stage.wait_condition("Ready", "True")
    assert serving_commit(stage) == second
    stage.wait_pods(first, 0)
