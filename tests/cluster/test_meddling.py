"""Somebody else's hands on the operator's objects, and edits and restarts at random moments."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.stage import REPO, Stage, wait_for

pytestmark = pytest.mark.cluster

CHILD_SELECTOR = "app.kubernetes.io/managed-by=octavo"
LABEL_REVISION = "octavo.dev/revision"


def count_writes(stage: Stage) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{stage.metrics_port}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == "octavo_operator_writes_total")


def patch(stage: Stage, plural: str, name: str, kind: str, content: object) -> None:
    answer = stage.client.patch(
        stage.path(plural, name),
        headers={"Content-Type": f"application/{kind}+json"},
        content=json.dumps(content),
    )
    answer.raise_for_status()


def test_hand_edits_are_undone_and_then_the_operator_is_silent(stage: Stage) -> None:
    """What an apply leaves in (a list item, a label of a selector) used to be applied for ever."""
    stage.serve(stage.add_commit("first"))
    (before,) = stage.list("deployments")
    name = before["metadata"]["name"]
    containers = "/spec/template/spec/containers"

    env = {"name": "BY_HAND", "value": "1"}
    patch(
        stage,
        "deployments",
        name,
        "json-patch",
        [{"op": "add", "path": f"{containers}/0/env/-", "value": env}],
    )
    sidecar = {"name": "by-hand", "image": "example.test/by-hand"}
    patch(
        stage, "deployments", name, "json-patch", [{"op": "add", "path": f"{containers}/-", "value": sidecar}]
    )
    labels = {"metadata": {"labels": {LABEL_REVISION: None, "octavo.dev/service": "other"}}}
    patch(stage, "deployments", name, "merge-patch", labels)
    by_hand = {"spec": {"selector": {"by": "hand"}, "ports": [{"name": "by-hand", "port": 9999}]}}
    patch(stage, "services", "tiny", "strategic-merge-patch", by_hand)

    def undone() -> bool:
        found = stage.list("deployments") + stage.list("services", CHILD_SELECTOR)
        return "hand" not in json.dumps([body["spec"] for body in found])

    wait_for(undone, "all hand edits to be undone")
    wait_for(lambda: LABEL_REVISION in stage.list("deployments")[0]["metadata"]["labels"], "the label")
    (after,) = stage.list("deployments")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["spec"]["template"] == before["spec"]["template"]
    time.sleep(1)
    writes = count_writes(stage)
    time.sleep(2)
    assert count_writes(stage) == writes


def test_serving_pods_stay_when_somebody_deletes_their_record_in_mid_rollout(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.serve(first, model={"uri": f"hf://{REPO}", "revision": first})
    second = stage.add_commit("second")
    stage.apply(model={"uri": f"hf://{REPO}", "revision": second})
    (candidate,) = stage.wait_pods(second)
    serving = stage.service()["status"]["currentRevision"]

    stage.kubectl("delete", "controllerrevision", f"tiny-{serving}")
    turned = {"spec": {"selector": {LABEL_REVISION: candidate["metadata"]["labels"][LABEL_REVISION]}}}
    patch(stage, "services", "tiny", "merge-patch", turned)
    stage.apply(model={"uri": f"hf://{REPO}", "revision": second}, replicas=2)

    stage.wait_pods(first, 2)
    service = stage.client.get(stage.path("services", "tiny")).json()
    assert service["spec"]["selector"][LABEL_REVISION] == serving
    assert stage.condition("Available")["status"] == "True"
    stage.make_ready(stage.wait_pods(second, 2))
    stage.wait_condition("Ready", "True")
    stage.wait_pods(first, 0)


@dataclass
class Wanderer:
    """Takes random steps, and checks after each what must hold at any moment."""

    stage: Stage
    dice: random.Random
    commits: dict[str, str] = field(default_factory=dict)
    """What each word was first resolved to."""
    templates: dict[str, Any] = field(default_factory=dict)
    """By revision."""
    spec: dict[str, Any] = field(default_factory=dict)
    moves: int = 0

    def step(self) -> None:
        steps = [self.edit] * 5 + [self.kubelet] * 3 + [self.move_branches, self.meddle, self.restart]
        self.dice.choice(steps)()
        time.sleep(self.dice.random() * 0.3)
        self.check()

    def edit(self, word: str = "") -> None:
        word = word or self.dice.choice(["v1", "v2", "main"])
        self.stage.apply(
            model={"uri": f"hf://{REPO}", "revision": word},
            replicas=self.dice.randint(1, 2),
            rollout={"revisionHistoryLimit": 1},
        )
        self.spec = self.stage.service()["spec"]

    def kubelet(self) -> None:
        for pod in self.stage.pods():
            with contextlib.suppress(httpx.HTTPStatusError):  # it has gone meanwhile
                self.stage.make_ready([pod])

    def move_branches(self) -> None:
        self.moves += 1
        commit = self.stage.add_commit(f"move {self.moves}")
        for word in ("v1", "v2"):
            self.stage.store.tag(REPO, word, commit)

    def meddle(self) -> None:
        plural = self.dice.choice(["deployments", "services", "controllerrevisions"])
        bodies = self.stage.list(plural, CHILD_SELECTOR)
        if bodies:
            name = self.dice.choice(bodies)["metadata"]["name"]
            self.stage.client.delete(self.stage.path(plural, name))

    def restart(self) -> None:
        self.stage.stop_operator(signal.SIGKILL)
        self.stage.start_operator()

    def check(self) -> None:
        self.stage.require_operator()
        body = self.stage.service()
        assert body["spec"] == self.spec, "the operator wrote to the user's spec"
        owners = {entry["manager"]: entry["fieldsV1"] for entry in body["metadata"]["managedFields"]}
        assert set(owners.get("octavo-operator", {"f:status": {}})) == {"f:status"}
        status = body.get("status", {})
        generation = body["metadata"]["generation"]
        assert status.get("observedGeneration", -1) <= generation
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        if status.get("observedGeneration") != generation or "model" not in status:
            return
        if conditions["ModelResolved"]["status"] == "True":
            model = status["model"]
            assert model["requestedRevision"] == body["spec"]["model"]["revision"]
            first = self.commits.setdefault(model["requestedRevision"], model["resolvedRevision"])
            assert model["resolvedRevision"] == first, "the same words gave other weights"
        assert not conditions["Reconciling"]["status"] == conditions["Stalled"]["status"] == "True"
        for deployment in self.stage.list("deployments"):
            revision = deployment["metadata"]["labels"][LABEL_REVISION]
            template = deployment["spec"]["template"]
            assert self.templates.setdefault(revision, template) == template

    def settle(self, word: str) -> None:
        self.edit(word)

        def is_ready() -> bool:
            self.kubelet()
            self.check()
            body = self.stage.service()
            ready = self.stage.condition("Ready")
            settled = ready.get("observedGeneration") == body["metadata"]["generation"]
            return settled and ready["status"] == "True" and len(self.stage.list("deployments")) == 1

        wait_for(is_ready, f"{word} to serve alone")

        def has_only_its_pods() -> bool:
            """Those of a Deployment that is gone are collected by the cluster, a moment later."""
            return all(self.commits[word] in json.dumps(pod["spec"]) for pod in self.stage.pods())

        wait_for(has_only_its_pods, f"no pod of other weights than those of {word}")


def test_same_words_serve_the_same_weights_through_random_edits_and_restarts(stage: Stage) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    wanderer = Wanderer(stage, random.Random(seed))
    wanderer.move_branches()
    wanderer.edit("v1")
    for _ in range(50):
        wanderer.step()
    for word in ("v1", "v2", "main", "v1"):
        wanderer.settle(word)
    wait_for(lambda: len(stage.list("controllerrevisions")) <= 2, "old revisions to be forgotten")
    assert "Traceback" not in stage.log()
