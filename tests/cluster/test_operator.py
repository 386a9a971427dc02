"""The real operator process against a real API server; the test plays kubelet, hub and user."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.stage import REPO, Stage, wait_for
from tests.support.model_hub import Weather

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
CHILD_KINDS = ("deployments", "services", "configmaps", "controllerrevisions", "pods", "replicasets")
CHILD_SELECTOR = "app.kubernetes.io/managed-by=octavo"


def test_operator_makes_children_and_a_plan_when_a_service_is_applied(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply()

    (pod,) = stage.wait_pods(commit)
    progressing = stage.wait_condition("Reconciling", "True", reason="RolloutProgressing")
    assert "0 of 1 replicas" in progressing["message"]
    stage.make_ready([pod])

    stage.wait_condition("Ready", "True")
    body = stage.service()
    status = body["status"]
    statuses = {one["type"]: one["status"] for one in status["conditions"]}
    expected = {
        "Ready": "True",
        "Available": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "ModelResolved": "True",
        "MemoryPlanned": "True",
        "RevisionPinned": "False",
        "RevisionDrifted": "False",
        "ImagePinned": "False",
    }
    assert expected.items() <= statuses.items()
    assert status["observedGeneration"] == body["metadata"]["generation"]
    assert status["model"]["resolvedRevision"] == commit
    assert status["memoryPlan"]["kvTokens"] >= 4 * 1024
    assert status["url"] == f"http://tiny.{stage.namespace}.svc:8000"
    assert status["currentRevision"] == status["updateRevision"]
    (service,) = stage.list("services", CHILD_SELECTOR)
    assert service["spec"]["selector"]["octavo.dev/revision"] == status["currentRevision"]
    columns = stage.kubectl("get", "lsvc", "tiny", "-o", "wide").splitlines()
    assert columns[0].split("   ")[0].strip() == "NAME"
    assert columns[1].split()[:4] == ["tiny", "True", f"hf://{REPO}", commit[:12]]


def test_operator_writes_nothing_but_status_to_the_users_object(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)

    body = stage.service()
    fields = {entry["manager"]: entry for entry in body["metadata"]["managedFields"]}
    assert set(fields["octavo-operator"]["fieldsV1"]) == {"f:status"}
    assert fields["octavo-operator"]["subresource"] == "status"
    assert set(fields) == {"gitops", "octavo-operator"}
    assert not body["metadata"].get("finalizers")
    assert not body["metadata"].get("annotations")
    assert body["metadata"]["generation"] == 1


def test_operator_is_silent_when_nothing_changes(stage: Stage) -> None:
    """A wrong comparison with what the API server stored would apply for ever, or after a restart."""
    commit = stage.add_commit("first")
    stage.serve(commit)

    def versions() -> dict[str, str]:
        kinds = ("deployments", "services", "configmaps", "controllerrevisions", "pods")
        found = [stage.service(), *(body for kind in kinds for body in stage.list(kind))]
        return {body["metadata"]["uid"]: body["metadata"]["resourceVersion"] for body in found}

    def at_rest() -> dict[str, str] | None:
        """The Deployment's controller writes its status some moments after the pod's."""
        first = versions()
        time.sleep(1)
        return first if versions() == first else None

    before = wait_for(at_rest, "all to be at rest")
    assert stage.stop_operator() == 0
    stage.start_operator()
    stage.apply("other", model={"uri": f"hf://{REPO}", "revision": commit})
    stage.wait_pods(commit, 2)
    after = versions()
    assert {uid: after[uid] for uid in before} == before


def test_moving_branch_changes_nothing_when_the_words_stay(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.serve(first)
    second = stage.add_commit("second")

    stage.apply(replicas=3)
    stage.make_ready(stage.wait_pods(first, 3))
    assert stage.pods(second) == []
    stage.kubectl("delete", "pod", stage.pods(first)[0]["metadata"]["name"])
    stage.wait_pods(first, 3)
    assert stage.service()["status"]["model"]["resolvedRevision"] == first

    stage.apply(replicas=3, model={"uri": f"hf://{REPO}", "refreshToken": "again"})
    stage.wait_pods(second, 3)


def test_edit_of_the_revision_rolls_over_when_the_candidate_is_ready(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.store.tag(REPO, "v1", first)
    second = stage.add_commit("second")
    stage.serve(first, model={"uri": f"hf://{REPO}", "revision": "v1"})
    (old,) = stage.pods(first)
    selector = stage.list("services", CHILD_SELECTOR)[0]["spec"]["selector"]

    stage.apply(model={"uri": f"hf://{REPO}", "revision": "main"})
    (candidate,) = stage.wait_pods(second)
    stage.wait_condition("Ready", "False", reason="RolloutProgressing")
    assert stage.condition("Available")["status"] == "True"
    assert stage.list("services", CHILD_SELECTOR)[0]["spec"]["selector"] == selector
    stage.make_ready([candidate])
    stage.wait_condition("Ready", "True")
    stage.wait_pods(first, 0)
    assert stage.list("services", CHILD_SELECTOR)[0]["spec"]["selector"] != selector
    template = stage.list("controllerrevisions")

    stage.apply(model={"uri": f"hf://{REPO}", "revision": "v1"})
    (back,) = stage.wait_pods(first)
    assert (
        back["metadata"]["labels"]["octavo.dev/revision"] == old["metadata"]["labels"]["octavo.dev/revision"]
    )
    stage.make_ready([back])
    stage.wait_condition("Ready", "True")
    stage.wait_pods(second, 0)
    assert len(template) == len(stage.list("controllerrevisions")) == 2


def test_revert_in_mid_rollout_keeps_the_serving_pod(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.store.tag(REPO, "v1", first)
    second = stage.add_commit("second")
    stage.serve(first, model={"uri": f"hf://{REPO}", "revision": "v1"})
    (serving,) = stage.pods(first)

    stage.apply(model={"uri": f"hf://{REPO}", "revision": "main"})
    stage.wait_pods(second)
    stage.apply(model={"uri": f"hf://{REPO}", "revision": "v1"})
    stage.wait_pods(second, 0)

    stage.wait_condition("Ready", "True")
    assert [pod["metadata"]["uid"] for pod in stage.pods(first)] == [serving["metadata"]["uid"]]


def test_next_edit_wins_when_the_candidate_fails(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.serve(first, model={"uri": f"hf://{REPO}", "revision": first})
    second, third = stage.add_commit("second"), stage.add_commit("third")

    stage.apply(model={"uri": f"hf://{REPO}", "revision": second})
    (broken,) = stage.wait_pods(second)
    words = json.dumps({"reason": "DigestMismatch", "message": "note.txt: want aa, have bb"})
    stage.fail_pod(broken, container="fetch", exit_code=3, message=words)
    ready = stage.wait_condition("Ready", "False", reason="DigestMismatch")
    assert "want aa, have bb" in ready["message"]
    assert stage.condition("Stalled")["status"] == "True"
    assert stage.condition("Reconciling")["status"] == "False"
    assert stage.condition("Available")["status"] == "True"
    assert stage.service()["status"]["lastFailure"]["exitCode"] == 3
    assert len(stage.pods(first)) == 1

    stage.apply(model={"uri": f"hf://{REPO}", "revision": third})
    (good,) = stage.wait_pods(third)
    stage.wait_pods(second, 0)
    stage.make_ready([good])
    stage.wait_condition("Ready", "True")
    stage.wait_pods(first, 0)


@pytest.mark.parametrize(
    ("spec", "condition", "reason", "text"),
    [
        pytest.param(
            {"model": {"uri": "hf://octavo-tests/absent"}},
            "ModelResolved",
            "RepositoryNotFound",
            "octavo-tests/absent",
            id="no such repository",
        ),
        pytest.param(
            {"model": {"uri": f"hf://{REPO}", "revision": "v9"}},
            "ModelResolved",
            "RevisionNotFound",
            "v9",
            id="no such revision",
        ),
        pytest.param(
            {"resources": {"cpu": "1", "memory": "256Mi"}},
            "MemoryPlanned",
            "InsufficientMemory",
            "256 MiB",
            id="too little memory",
        ),
        pytest.param(
            {"engine": {"maxModelLen": 4096}},
            "MemoryPlanned",
            "ContextTooLong",
            "1024",
            id="longer than the model",
        ),
    ],
)
def test_operator_refuses_with_reason_when_it_cannot_be(
    stage: Stage, spec: dict[str, object], condition: str, reason: str, text: str
) -> None:
    commit = stage.add_commit("first")
    stage.apply(**spec)

    refused = stage.wait_condition(condition, "False", reason=reason)
    assert text in refused["message"]
    assert stage.wait_condition("Stalled", "True", reason=reason)
    assert stage.condition("Ready")["reason"] == reason
    assert stage.list("deployments") == []
    stage.apply("healthy")
    stage.wait_pods(commit)


def test_hub_outage_unpins_nothing_and_mends_itself(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.serve(first)
    stage.store.set_weather(Weather(outage=True))
    stage.apply(replicas=2)
    stage.make_ready(stage.wait_pods(first, 2))
    stage.wait_condition("Ready", "True")

    stage.store.tag(REPO, "v2", first)
    stage.apply(model={"uri": f"hf://{REPO}", "revision": "v2"}, replicas=2)
    stage.wait_condition("Reconciling", "True", reason="HubUnavailable")
    assert stage.condition("Available")["status"] == "True"
    assert len(stage.pods(first)) == 2
    stage.store.set_weather(Weather())
    stage.wait_condition("Ready", "False", reason="RolloutProgressing")


def test_restarted_operator_applies_what_was_edited_meanwhile(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.serve(first)
    second = stage.add_commit("second")
    stage.stop_operator(signal.SIGKILL)
    stage.apply(model={"uri": f"hf://{REPO}", "revision": second})
    stage.engine_image = "example.test/engine:2"

    stage.start_operator()

    (pod,) = stage.wait_pods(second)
    assert pod["spec"]["containers"][0]["image"] == "example.test/engine:2"
    stage.make_ready([pod])
    stage.wait_condition("Ready", "True")
    stage.apply()
    (back,) = stage.wait_pods(first)
    assert back["spec"]["containers"][0]["image"] == "example.test/engine:1", "the stored template is used"


def test_deletion_removes_all_that_was_made(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)

    stage.kubectl("delete", "lsvc", "tiny", "--timeout=20s")

    wait_for(lambda: not any(stage.list(kind, CHILD_SELECTOR) for kind in CHILD_KINDS), "no child is left")
    stage.apply()
    stage.wait_pods(commit)


def test_new_object_of_the_same_name_waits_for_the_children_of_the_old_one(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    old = stage.pods(commit)[0]["metadata"]["uid"]

    stage.kubectl("delete", "lsvc", "tiny", "--timeout=20s")
    stage.apply()

    wait_for(
        lambda: [pod for pod in stage.pods(commit) if pod["metadata"]["uid"] != old], "a pod of the new one"
    )
    stage.wait_condition("Ready", "False", reason="RolloutProgressing")
    wait_for(lambda: len(stage.pods(commit)) == 1, "the old pod to go")


def test_quota_that_refuses_pods_is_told(stage: Stage) -> None:
    stage.add_commit("first")
    stage.kubectl("create", "quota", "none", "--hard=pods=0")
    stage.apply()
    refused = stage.wait_condition("Ready", "False", reason="PodsRefused")
    assert "exceeded quota" in refused["message"]


def test_keys_of_clients_are_in_a_secret_that_the_operator_never_reads(stage: Stage) -> None:
    """They could only stand in spec, where everybody reads them who may read the service."""
    stage.kubectl("create", "secret", "generic", "chat-keys", "--from-literal=apiKeys=sk-not-told")
    commit = stage.add_commit("first")
    stage.serve(commit, engine={"apiKeySecretRef": {"name": "chat-keys"}})
    (pod,) = stage.pods(commit)
    (keys,) = [one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "OCTAVO_API_KEY"]
    assert keys["valueFrom"]["secretKeyRef"] == {"name": "chat-keys", "key": "apiKeys"}
    for plural in ("deployments", "controllerrevisions", "pods"):
        assert "sk-not-told" not in json.dumps(stage.list(plural))
    assert [one for one in stage.asked() if one.resource == "secrets"] == []


def test_pod_that_waits_for_the_secret_with_the_keys_says_so(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply(engine={"apiKeySecretRef": {"name": "absent"}})
    (pod,) = stage.wait_pods(commit)
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "absent" not found'}
    container = {"name": "engine", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
    status = {**container, "state": {"waiting": waiting}}
    stage.write_pod_status(pod, {"phase": "Pending", "containerStatuses": [status]})
    told = stage.wait_condition("Ready", "False", reason="CreateContainerConfigError")
    assert 'secret "absent" not found' in told["message"]


def test_child_that_the_api_server_refuses_is_told(stage: Stage) -> None:
    stage.add_commit("first")
    stage.kubectl("create", "quota", "none", "--hard=count/deployments.apps=0")
    stage.apply()
    refused = stage.wait_condition("Ready", "False", reason="ChildRefused")
    assert "exceeded quota" in refused["message"]
    assert "Traceback" not in stage.log()


def test_namespace_goes_when_the_operator_is_stopped(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    assert stage.stop_operator() == 0

    stage.cluster.kubectl("delete", "namespace", stage.namespace, "--timeout=60s")


def test_namespace_goes_quietly_when_the_operator_runs(stage: Stage) -> None:
    stage.serve(stage.add_commit("first"))

    stage.cluster.kubectl("delete", "namespace", stage.namespace, "--timeout=60s")

    assert "ChildRefused" not in stage.log()
    assert "Traceback" not in stage.log()


def test_operator_reverts_a_hand_edit_of_its_child(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    (deployment,) = stage.list("deployments")

    stage.kubectl("scale", "deployment", deployment["metadata"]["name"], "--replicas=5")

    wait_for(lambda: stage.list("deployments")[0]["spec"]["replicas"] == 1, "one replica again")


def test_operator_leaves_foreign_objects_of_its_names_alone(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.kubectl("create", "service", "clusterip", "tiny", "--tcp=80:80")
    stage.apply()

    refused = stage.wait_condition("Stalled", "True", reason="NameConflict")
    assert "Service tiny" in refused["message"]
    assert stage.pods(commit) == []
    assert "octavo.dev/revision" not in json.dumps(stage.list("services"))


def test_operator_is_healthy_and_never_forbidden(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    with urllib.request.urlopen(f"http://127.0.0.1:{stage.health_port}/healthz", timeout=5) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{stage.metrics_port}/metrics", timeout=5) as answer:
        assert b"octavo_operator_passes_total" in answer.read()
    events = {(event["reason"], event["type"]) for event in stage.list("events")}
    assert {("Resolved", "Normal"), ("RolloutProgressing", "Normal"), ("Serving", "Normal")} <= events
    assert stage.stop_operator() == 0
    assert [one for one in stage.asked() if one.denied] == []
    assert "Traceback" not in stage.log()
