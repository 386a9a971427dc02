"""Words and commits on a real API server: followed, drifted, gated, on a claim, in an image, gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo.model_report import ModelReport, encode_model_report
from tests.cluster.stage import CONFIG, REPO, Refused, Stage, wait_for
from tests.support.model_hub import Weather
from tests.support.model_hub.traffic import read_requests

pytestmark = pytest.mark.cluster

URI = f"hf://{REPO}"
DIGEST = f"sha256:{'ab' * 32}"


@pytest.fixture
def watchful(quiet_stage: Stage) -> Stage:
    """An operator that asks every half second what words mean by now."""
    quiet_stage.upstream_interval = 0.5
    quiet_stage.start_operator()
    return quiet_stage


def uids(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods()}


def ledger(stage: Stage) -> list[dict[str, Any]]:
    (body,) = [one for one in stage.list("configmaps") if one["metadata"]["name"] == "tiny-pins"]
    lines: list[dict[str, Any]] = json.loads(body["data"]["pins.json"])
    return lines


# Drift ----------------------------------------------------------------------------------------------
def test_drift_is_told_and_moves_nothing(watchful: Stage) -> None:
    first = watchful.add_commit("first")
    watchful.serve(first)
    watchful.wait_condition("RevisionDrifted", "False", reason="UpToDate")
    before = uids(watchful)

    second = watchful.add_commit("second")
    drifted = watchful.wait_condition("RevisionDrifted", "True", reason="UpstreamMoved")
    assert second in drifted["message"]
    model = watchful.service()["status"]["model"]
    assert (model["resolvedRevision"], model["upstreamRevision"]) == (first, second)
    assert watchful.condition("Ready")["status"] == "True"

    watchful.store.set_weather(Weather(outage=True))
    watchful.stop_operator()
    watchful.start_operator()
    watchful.apply(replicas=2)
    watchful.make_ready(watchful.wait_pods(first, 2))
    watchful.wait_condition("Ready", "True")
    watchful.wait_condition("RevisionDrifted", "True", reason="UpstreamMoved")
    assert watchful.service()["status"]["model"]["upstreamRevision"] == second
    assert before <= uids(watchful)

    watchful.store.set_weather(Weather())
    watchful.store.set_branch(REPO, "main", first)
    watchful.wait_condition("RevisionDrifted", "False", reason="UpToDate")
    assert before <= uids(watchful)


def test_words_that_are_gone_upstream_go_on_serving(watchful: Stage) -> None:
    first = watchful.add_commit("first")
    watchful.store.tag(REPO, "v1", first)
    watchful.serve(first, model={"uri": URI, "revision": "v1"})
    before = uids(watchful)
    tag = watchful.store.root / "repos" / REPO.replace("/", "--") / "refs/tags/v1"
    tag.unlink()

    gone = watchful.wait_condition("RevisionDrifted", "True", reason="UpstreamGone")
    assert first in gone["message"]
    assert watchful.condition("Ready")["status"] == "True"
    assert uids(watchful) == before


def test_hub_is_asked_once_for_all_services_with_the_same_words(watchful: Stage) -> None:
    first = watchful.add_commit("first")
    for number in range(8):
        watchful.apply(f"tiny-{number}")
    watchful.wait_pods(first, 8)
    path = f"/api/models/{REPO}/revision/main"

    def questions() -> int:
        return sum(one.path == path for one in read_requests(watchful.store))

    before = questions()
    wait_for(lambda: questions() >= before + 4, "four more questions", seconds=20)
    second = watchful.add_commit("second")
    for number in range(8):
        watchful.wait_condition("RevisionDrifted", "True", name=f"tiny-{number}")
        assert watchful.service(f"tiny-{number}")["status"]["model"]["upstreamRevision"] == second
    assert questions() < before + 8 * 4


# Following ------------------------------------------------------------------------------------------
def test_followed_branch_rolls_over_and_the_last_good_stays_when_it_fails(watchful: Stage) -> None:
    first = watchful.add_commit("first")
    tracked = {"uri": URI, "revisionPolicy": "Track"}
    watchful.serve(first, model=tracked)
    watchful.wait_condition("RevisionPinned", "False", reason="Tracked")

    broken = watchful.add_commit("broken")
    (pod,) = watchful.wait_pods(broken)
    words = json.dumps({"reason": "DigestMismatch", "message": "note.txt: want aa, have bb"})
    watchful.fail_pod(pod, container="fetch", exit_code=14, message=words)
    watchful.wait_condition("Stalled", "True", reason="DigestMismatch")
    assert watchful.condition("Available")["status"] == "True"
    assert len(watchful.pods(first)) == 1

    third = watchful.add_commit("third")
    (good,) = watchful.wait_pods(third)
    watchful.wait_pods(broken, 0)
    watchful.make_ready([good])
    watchful.wait_condition("Ready", "True")
    watchful.wait_pods(first, 0)
    assert [line["commit"] for line in ledger(watchful)] == [first, broken, third]
    assert watchful.service()["metadata"]["generation"] == 1, "spec is the user's"


def test_private_branch_is_followed_by_resolver_pods(quiet_stage: Stage) -> None:
    """The operator, which has no token, followed nothing."""
    stage = quiet_stage
    stage.upstream_interval, stage.private_interval = 0.5, 10.0
    stage.add_commit("of another repository")
    stage.start_operator()
    first, second = "1" * 40, "2" * 40
    private = {"uri": "hf://organization/private", "credentialsSecretRef": {"name": "hf-token"}}
    stage.apply(model={**private, "revisionPolicy": "Track"})
    resolver = stage.wait_resolver()
    stage.end_resolver(resolver, "Succeeded", report(first))
    stage.make_ready(stage.wait_pods(first))
    stage.wait_condition("Ready", "True")

    again = stage.wait_resolver(other_than=resolver["metadata"]["uid"])
    words = json.dumps({"reason": "HubUnavailable", "message": "unreachable"})
    stage.end_resolver(again, "Failed", words)
    wait_resolver_gone(stage)
    assert stage.condition("Ready")["status"] == "True"

    third = stage.wait_resolver(other_than=again["metadata"]["uid"])
    stage.end_resolver(third, "Succeeded", report(second))
    stage.make_ready(stage.wait_pods(second))
    stage.wait_condition("Ready", "True")
    stage.wait_pods(first, 0)
    assert [line["commit"] for line in ledger(stage)] == [first, second]


def test_outage_changes_nothing_under_track(watchful: Stage) -> None:
    first = watchful.add_commit("first")
    watchful.serve(first, model={"uri": URI, "revisionPolicy": "Track"})
    before = uids(watchful)
    watchful.store.set_weather(Weather(outage=True))
    second = watchful.add_commit("second")
    watchful.stop_operator()
    watchful.start_operator()
    watchful.apply(model={"uri": URI, "revisionPolicy": "Track"}, replicas=2)
    watchful.make_ready(watchful.wait_pods(first, 2))
    watchful.wait_condition("Ready", "True")
    assert before <= uids(watchful)

    watchful.store.set_weather(Weather())
    watchful.wait_pods(second, 2)


# Policies and history -------------------------------------------------------------------------------
def test_unpinned_words_are_refused_by_the_api_server_when_pinned_ones_are_required(stage: Stage) -> None:
    commit = stage.add_commit("first")
    with pytest.raises(Refused, match="octavo pin"):
        stage.apply(model={"uri": URI, "revision": "main", "revisionPolicy": "RequirePinned"})
    with pytest.raises(Refused, match="refreshToken"):
        stage.apply(model={"uri": "pvc://models/tiny", "revisionPolicy": "Track"})
    stage.serve(commit, model={"uri": URI, "revision": commit, "revisionPolicy": "RequirePinned"})
    stage.wait_condition("RevisionPinned", "True", reason="Pinned")
    stage.wait_condition("RevisionDrifted", "False", reason="CannotMove")


def test_words_keep_their_commit_when_their_revision_was_pruned(stage: Stage) -> None:
    first = stage.add_commit("first")
    history = {"revisionHistoryLimit": 0}
    stage.serve(first, rollout=history)
    second = stage.add_commit("second")
    stage.serve(second, model={"uri": URI, "revision": second}, rollout=history)
    wait_for(lambda: len(stage.list("controllerrevisions")) == 1, "the first revision to be pruned")

    stage.apply(rollout=history)
    (back,) = stage.wait_pods(first)
    stage.make_ready([back])
    stage.wait_condition("Ready", "True")
    assert stage.service()["status"]["model"]["resolvedRevision"] == first


def test_damaged_pins_are_told_as_such_and_made_anew_when_they_are_deleted(stage: Stage) -> None:
    """It was called InvalidSpec, though the spec was right."""
    commit = stage.add_commit("first")
    stage.serve(commit)
    before = ledger(stage)
    stage.kubectl("patch", "configmap", "tiny-pins", "--type=merge", "-p", '{"data":{"pins.json":"[1]"}}')
    told = stage.wait_condition("Stalled", "True", reason="PinsDamaged")
    assert "kubectl delete configmap tiny-pins" in told["message"]

    stage.add_commit("second")
    stage.kubectl("delete", "configmap", "tiny-pins")
    stage.wait_condition("Ready", "True")
    wait_for(lambda: ledger(stage)[0]["commit"] == commit, "the pins to be made anew")
    assert [one["commit"] for one in ledger(stage)] == [one["commit"] for one in before]


def test_commit_that_is_gone_upstream_is_named_and_nothing_else_is_taken(stage: Stage) -> None:
    """History was rewritten: what runs is left alone, what is new is refused, and main is no stand-in."""
    first = stage.add_commit("first")
    stage.serve(first, model={"uri": URI, "revision": first})
    before = uids(stage)
    second = stage.add_commit("second")
    (stage.store.root / "repos" / REPO.replace("/", "--") / "commits" / f"{first}.json").unlink()

    stage.apply(model={"uri": URI, "revision": first}, replicas=2)
    pods = stage.wait_pods(first, 2)
    (new,) = [pod for pod in pods if pod["metadata"]["uid"] not in before]
    words = json.dumps({"reason": "RevisionNotFound", "message": f"{REPO} has no {first}"})
    stage.fail_pod(new, container="fetch", exit_code=11, message=words)
    assert stage.condition("Available")["status"] == "True"
    stage.apply("other", model={"uri": URI, "revision": first})
    refused = stage.wait_condition("ModelResolved", "False", reason="RevisionNotFound", name="other")
    assert first in refused["message"]
    assert before <= uids(stage)
    assert stage.pods(second) == []


def test_every_file_of_a_pod_is_asked_for_by_commit_and_digest(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply()
    (pod,) = stage.wait_pods(commit)
    stage.wait_condition("MemoryPlanned", "True")
    model = stage.service()["status"]["model"]
    args = pod["spec"]["initContainers"][0]["args"]
    assert args[args.index("--manifest-digest") + 1] == model["manifestDigest"]
    assert model["sizeBytes"] > 0
    assert ledger(stage)[0]["manifest_digest"] == model["manifestDigest"]


# Resolver pods --------------------------------------------------------------------------------------
def report(commit: str) -> str:
    found = ModelReport(commit=commit, manifest_digest=DIGEST, size_bytes=7, config=CONFIG)
    return encode_model_report(found)


def wait_resolver_gone(stage: Stage) -> None:
    wait_for(lambda: not stage.list("pods", "octavo.dev/question"), "the resolver pod to go")


def test_gated_repository_is_opened_by_a_secret_that_the_operator_never_reads(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.store.gate(REPO)
    stage.apply()
    denied = stage.wait_condition("Stalled", "True", reason="AccessDenied")
    assert "spec.model.credentialsSecretRef" in denied["message"]

    stage.kubectl("create", "secret", "generic", "hf-token", "--from-literal=token=hf_test")
    gated = {"uri": URI, "credentialsSecretRef": {"name": "hf-token"}}
    stage.apply(model=gated)
    resolver = stage.wait_resolver()
    stage.wait_condition("Reconciling", "True", reason="Resolving")
    assert "hf_test" not in json.dumps(resolver)
    assert resolver["spec"]["automountServiceAccountToken"] is False
    assert [one["metadata"]["name"] for one in stage.list("networkpolicies")] == ["tiny-resolve"]
    stage.end_resolver(resolver, "Succeeded", report(commit))

    (pod,) = stage.wait_pods(commit)
    wait_resolver_gone(stage)
    args = pod["spec"]["initContainers"][0]["args"]
    assert args[args.index("--token-file") + 1] == contract.TOKEN_FILE
    assert args[args.index("--manifest-digest") + 1] == DIGEST
    stage.make_ready([pod])
    stage.wait_condition("Ready", "True")
    assert stage.service()["status"]["model"]["sizeBytes"] == 7
    assert stage.stop_operator() == 0
    assert [one for one in stage.asked() if one.denied or one.resource == "secrets"] == []


def test_resolver_that_fails_says_why_and_is_tried_again(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply(model={"uri": URI, "credentialsSecretRef": {"name": "hf-token"}})
    resolver = stage.wait_resolver()
    words = json.dumps({"reason": "AccessDenied", "message": "the terms are not accepted"})
    stage.end_resolver(resolver, "Failed", words)
    stalled = stage.wait_condition("Stalled", "True", reason="AccessDenied")
    assert "the terms are not accepted" in stalled["message"]
    assert stage.service()["status"]["lastFailure"]["reason"] == "AccessDenied"

    again = stage.wait_resolver(other_than=resolver["metadata"]["uid"])
    stage.end_resolver(again, "Succeeded", report(commit))
    stage.wait_pods(commit)
    wait_resolver_gone(stage)


def test_model_on_a_claim_is_named_by_its_files(stage: Stage) -> None:
    stage.apply(model={"uri": "pvc://models/tiny"})
    resolver = stage.wait_resolver()
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": '0/1 nodes are available: persistentvolumeclaim "models" not found.',
    }
    stage.write_pod_status(resolver, {"phase": "Pending", "conditions": [condition]})
    missing = stage.wait_condition("ModelResolved", "Unknown", reason="ClaimMissing")
    assert "PersistentVolumeClaim models" in missing["message"]

    stage.end_resolver(resolver, "Succeeded", report(DIGEST))
    (pod,) = stage.wait_pods(DIGEST)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["source"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    stage.wait_condition("MemoryPlanned", "True")
    unpinned = stage.wait_condition("RevisionPinned", "False", reason="UnpinnedWords")
    assert f"revision: {DIGEST}" in unpinned["message"]
    assert stage.service()["status"]["model"]["resolvedRevision"] == DIGEST
    wait_resolver_gone(stage)


def test_model_in_an_image_is_mounted_as_a_volume(stage: Stage) -> None:
    """The API server of the tests has the gate ImageVolume on; no node mounts anything here."""
    stage.apply(model={"uri": "oci://example.test/models/tiny:1"})
    resolver = stage.wait_resolver()
    volumes = {volume["name"]: volume for volume in resolver["spec"]["volumes"]}
    assert volumes["source"]["image"]["reference"] == "example.test/models/tiny:1"
    stage.end_resolver(resolver, "Succeeded", report(DIGEST))
    (pod,) = stage.wait_pods(DIGEST)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["source"]["image"]["reference"] == "example.test/models/tiny:1"
    wait_resolver_gone(stage)


def test_quota_that_refuses_the_resolver_is_told(stage: Stage) -> None:
    stage.kubectl("create", "quota", "none", "--hard=pods=0")
    stage.apply(model={"uri": "pvc://models/tiny"})
    refused = stage.wait_condition("Ready", "False", reason="PodsRefused")
    assert "exceeded quota" in refused["message"]


def test_resolver_goes_with_its_service(stage: Stage) -> None:
    stage.apply(model={"uri": "pvc://models/tiny"})
    stage.wait_resolver()
    stage.kubectl("delete", "lsvc", "tiny", "--timeout=20s")
    wait_resolver_gone(stage)


def test_files_can_be_kept_on_a_claim(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply(model={"uri": URI, "cache": {"persistentVolumeClaim": "cache"}})
    (pod,) = stage.wait_pods(commit)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "cache"}


# Progress -------------------------------------------------------------------------------------------
class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"bytes_done": 2**30, "bytes_total": 16 * 2**30}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@contextmanager
def fetcher(address: str) -> Iterator[None]:
    server = ThreadingHTTPServer((address, contract.FETCH_PROGRESS_PORT), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_progress_of_the_fetch_is_told_and_seldom_written(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.apply()
    (pod,) = stage.wait_pods(commit)
    running = {
        "name": "fetch",
        "ready": False,
        "restartCount": 0,
        "image": stage.engine_image,
        "imageID": "",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    with fetcher("127.0.0.77"):
        stage.write_pod_status(
            pod, {"phase": "Pending", "podIP": "127.0.0.77", "initContainerStatuses": [running]}
        )

        def told() -> bool:
            return "fetching 1.00 GiB of 16.00 GiB (6 %)" in stage.condition("Ready")["message"]

        wait_for(told, "the progress")
        version = stage.service()["metadata"]["resourceVersion"]
        stage.kubectl("annotate", "pod", pod["metadata"]["name"], "poke=1")
        stage.apply("other", model={"uri": URI, "revision": commit})
        stage.wait_pods(commit, 2)
        assert stage.service()["metadata"]["resourceVersion"] == version
