"""What other operators were caught by: kills in mid-exchange, namesakes, wiped status, absent images."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.stage import PLURAL, REPO, Body, Stage, wait_for

pytestmark = pytest.mark.cluster

LABEL_REVISION = "octavo.dev/revision"
CHILD_SELECTOR = "app.kubernetes.io/managed-by=octavo"
CHILD_KINDS = ("deployments", "services", "configmaps", "controllerrevisions", "pods", "replicasets")


def at(commit: str) -> dict[str, str]:
    return {"uri": f"hf://{REPO}", "revision": commit}


def uid(body: Body) -> str:
    return str(body["metadata"]["uid"])


def serve_all(stage: Stage, commit: str, replicas: int, **spec: Any) -> None:
    stage.apply(model=at(commit), replicas=replicas, **spec)
    stage.make_ready(stage.wait_pods(commit, replicas))
    stage.wait_condition("Ready", "True")


def wait_all_ready(stage: Stage, number: int) -> None:
    wait_for(lambda: stage.service()["status"].get("readyReplicas") == number, f"{number} ready replicas")


def ready_pods(stage: Stage) -> list[Body]:
    """Those that the Service of clients selects, as its endpoints would be."""
    service = stage.client.get(stage.path("services", "tiny")).raise_for_status().json()
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    pods = stage.list("pods", selector)
    return [pod for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod: Body) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@contextmanager
def watched(look: Callable[[], None]) -> Iterator[None]:
    """Looks all the time; what it finds wrong is raised at the end."""
    end, wrong = threading.Event(), list[BaseException]()

    def run() -> None:
        while not end.wait(0.05) and not wrong:
            try:
                look()
            except BaseException as error:
                wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    if wrong:
        raise wrong[0]


# Killed -----------------------------------------------------------------------------------------------
def test_each_replica_is_exchanged_once_though_the_operator_is_killed_in_the_middle(stage: Stage) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    in_place = {"strategy": "InPlace"}
    serve_all(stage, first, 3, rollout=in_place)
    made: set[str] = set()

    def look() -> None:
        made.update(uid(pod) for pod in stage.pods(second))

    with watched(look):
        stage.apply(model=at(second), replicas=3, rollout=in_place)
        stage.make_ready(stage.wait_pods(second, 1))
        stage.stop_operator(signal.SIGKILL)
        stage.start_operator()
        for number in (2, 3):
            stage.make_ready(stage.wait_pods(second, number))
        stage.wait_condition("Ready", "True")
        stage.wait_pods(first, 0)
    assert len(made) == 3, "a restarted operator began anew"


# Namesakes --------------------------------------------------------------------------------------------
def test_services_of_one_name_in_two_namespaces_do_not_meet(make_stage: Callable[..., Stage]) -> None:
    """One operator for all namespaces; only the first stage has it running."""
    one, other = make_stage(everywhere=True), make_stage()
    commit = one.add_commit("first")
    one.start_operator()
    one.apply(model=at(commit))
    other.apply(model=at(commit), replicas=2)
    for stage, number in ((one, 1), (other, 2)):
        stage.make_ready(stage.wait_pods(commit, number))
        wait_all_ready(stage, number)
    kept, status = {uid(pod) for pod in other.pods(commit)}, other.service()["status"]

    def look() -> None:
        assert {uid(pod) for pod in other.pods()} == kept
        assert other.service()["status"] == status

    with watched(look):
        one.apply(model=at(commit), engine={"image": "example.test/engine:other"})
        wait_for(lambda: len(one.pods()) == 2, "the candidate of the edited one")
        one.kubectl("delete", "lsvc", "tiny", "--timeout=20s")
        wait_for(lambda: not one.pods(), "its pods to go")
        time.sleep(2)


def test_namespace_that_is_deleted_is_refused_once_and_left_alone(make_stage: Callable[..., Stage]) -> None:
    """Each child that went woke the operator, which tried to make it again: a dozen refusals in seconds."""
    one, other = make_stage(everywhere=True), make_stage()
    commit = one.add_commit("first")
    one.start_operator()
    other.apply(model=at(commit), replicas=2)
    other.make_ready(other.wait_pods(commit, 2))
    wait_all_ready(other, 2)

    other.cluster.kubectl("delete", "namespace", other.namespace, "--timeout=60s")

    asked = [request for request in one.asked() if request.namespace == other.namespace]
    assert len([request for request in asked if request.code == 403]) <= 1, asked
    assert "Traceback" not in one.log()
    assert "is being terminated" not in one.log()


# Wiped ------------------------------------------------------------------------------------------------
def test_status_that_was_wiped_is_written_again_and_no_pod_is_restarted(stage: Stage) -> None:
    commit = stage.add_commit("first")
    serve_all(stage, commit, 2)
    pods, before = {uid(pod) for pod in stage.pods()}, stage.service()["status"]
    stage.stop_operator(signal.SIGKILL)
    answer = stage.client.put(
        stage.path(PLURAL, "tiny") + "/status", json={**stage.service(), "status": {}}
    ).raise_for_status()
    assert "conditions" not in answer.json()["status"]

    stage.start_operator()
    stage.wait_condition("Ready", "True")
    after = stage.service()["status"]
    for field in ("model", "memoryPlan", "currentRevision", "updateRevision", "lastKnownGood", "url"):
        assert after[field] == before[field], field
    assert {one["type"]: one["status"] for one in after["conditions"]} == {
        one["type"]: one["status"] for one in before["conditions"]
    }
    assert {uid(pod) for pod in stage.pods()} == pods


# An image that is not there -----------------------------------------------------------------------------
def test_image_that_cannot_be_pulled_takes_nothing_from_what_serves(stage: Stage) -> None:
    first = stage.add_commit("first")
    serve_all(stage, first, 2)
    good = stage.service()["status"]["currentRevision"]
    edit = {"engine": {"image": "example.test/engine:absent"}, "rollout": {"progressDeadlineSeconds": 30}}

    def look() -> None:
        assert len(ready_pods(stage)) == 2
        assert stage.service()["status"]["currentRevision"] == good

    with watched(look):
        stage.apply(model=at(first), replicas=2, **edit)
        candidates = wait_for(
            lambda: [pod for pod in stage.pods() if "engine:absent" in json.dumps(pod)], "a candidate"
        )
        waiting = {"reason": "ImagePullBackOff", "message": "example.test/engine:absent: not found"}
        status = {"name": "fetch", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        stage.write_pod_status(
            candidates[0],
            {"phase": "Pending", "initContainerStatuses": [{**status, "state": {"waiting": waiting}}]},
        )
        told = stage.wait_condition("Ready", "False", reason="ImagePullFailed")
        assert "engine:absent: not found" in told["message"]
        assert stage.condition("Available")["status"] == "True"
        stage.wait_condition("Stalled", "True")
        wait_for(lambda: len(stage.pods()) == 2, "the candidate to be given up")
        time.sleep(2)
    events = [one["reason"] for one in stage.list("events")]
    assert events.count("ImagePullFailed") <= 2, "told when seen and when given up, not in a loop"


def test_engine_that_crashes_after_it_was_ready_is_told(stage: Stage) -> None:
    commit = stage.add_commit("first")
    serve_all(stage, commit, 1)
    (pod,) = stage.pods(commit)
    stage.fail_pod(pod, container="engine", exit_code=139, message="")
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    stage.write_pod_status(pod, {"conditions": [not_ready]})
    told = stage.wait_condition("Ready", "False", reason="EngineFailed")
    assert "139" in told["message"]
    assert stage.condition("Available")["status"] == "False"


# Deleted ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("strategy", ["Surge", "InPlace", "Canary"])
def test_deletion_in_the_middle_of_a_rollout_leaves_nothing(stage: Stage, strategy: str) -> None:
    first, second = stage.add_commit("first"), stage.add_commit("second")
    serve_all(stage, first, 2, rollout={"strategy": strategy})
    stage.apply(model=at(second), replicas=2, rollout={"strategy": strategy})
    candidates = wait_for(lambda: stage.pods(second), "a candidate")
    stage.make_ready(candidates[:1])
    stage.kubectl("delete", "lsvc", "tiny", "--timeout=20s")
    wait_for(lambda: not any(stage.list(kind, CHILD_SELECTOR) for kind in CHILD_KINDS), "no child is left")
    assert "Traceback" not in stage.log()
