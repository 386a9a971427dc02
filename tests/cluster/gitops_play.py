"""A play of 100 random acts: a GitOps tool edits and reverts while the operator is restarted and killed.

Three roles play at once. *Git* applies words under its own field manager; a *kubelet* makes pods ready after
a while; a *witness* looks at every version of the object and of its Deployments and writes down each breach
of the contract. What the witness checks:

- spec, labels, annotations, finalizers and owners are what Git wrote, and nobody else owns a field of them;
- a status never claims a generation that did not exist, and never goes back to an older one;
- kstatus says Current only when a pod of exactly the words' revision has been made ready;
- the same words are the same commit for ever, and the same intent the same pod template; only the operator's
  default image may be another one after an upgrade, and then only in pods that are made anew.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from octavo_operator.api.names import LABEL_REVISION
from octavo_operator.decide.intent import build_intent, hash_intent
from octavo_operator.decide.world import parse_spec
from tests.cluster.stage import PLURAL, REPO, Stage, wait_for
from tests.support.kstatus import kstatus

NAME = "tiny"
LOOK_SECONDS = 0.03
LABELS = {"team": "search"}
ANNOTATIONS = {"argocd.argoproj.io/tracking-id": "models:octavo.dev/InferenceService:prod/tiny"}
Body = dict[str, Any]


@dataclass
class Memory:
    """What was said and seen; shared by the roles under one lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    specs: dict[int, Body] = field(default_factory=dict)
    """By generation, as the API server stored Git's words."""
    readied: set[str] = field(default_factory=set)
    """Revisions of which a pod was made ready."""
    commits: dict[tuple[str, str, str], str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    """Hash of the pod template by Deployment, and, the image aside, by revision."""
    observed: int = -1
    breaches: list[str] = field(default_factory=list)

    def breach(self, words: str) -> None:
        if words not in self.breaches:
            self.breaches.append(words)


def digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


class Witness:
    """Looks at the object and its Deployments again and again."""

    def __init__(self, stage: Stage, memory: Memory) -> None:
        self._stage = stage
        self._memory = memory

    def look(self) -> None:
        answer = self._stage.client.get(self._stage.path(PLURAL, NAME))
        deployments = self._stage.list("deployments")
        if answer.status_code == 200:
            with self._memory.lock:
                self._check_object(answer.json())
                for body in deployments:
                    self._check_template(body)

    def _check_object(self, body: Body) -> None:
        memory, generation = self._memory, body["metadata"]["generation"]
        self._check_ownership(body)
        words = memory.specs.get(generation)
        if words is None:
            return  # Git has not heard back from the API server yet.
        if body["spec"] != words:
            memory.breach(f"spec of generation {generation} is not what Git wrote: {body['spec']}")
        self._check_status(body, generation)

    def _check_ownership(self, body: Body) -> None:
        metadata, memory = body["metadata"], self._memory
        if metadata.get("labels") != LABELS or metadata.get("annotations") != ANNOTATIONS:
            memory.breach(f"labels or annotations were touched: {metadata.get('labels')}")
        if metadata.get("finalizers") or metadata.get("ownerReferences"):
            memory.breach("a finalizer or an owner was added")
        for entry in metadata["managedFields"]:
            if entry["manager"] != "gitops" and set(entry["fieldsV1"]) != {"f:status"}:
                memory.breach(f"{entry['manager']} owns {sorted(entry['fieldsV1'])}")

    def _check_status(self, body: Body, generation: int) -> None:
        memory, status = self._memory, body.get("status", {})
        observed = status.get("observedGeneration", -1)
        if observed > generation or observed < memory.observed:
            memory.breach(f"observedGeneration went from {memory.observed} to {observed} of {generation}")
        memory.observed = observed
        if observed != generation:
            if kstatus(body) == "Current":
                memory.breach(f"Current at generation {generation}, judged for {observed}")
            return
        self._check_words(body, status)
        wanted = hash_intent(build_intent(parse_spec(body)))
        if kstatus(body) == "Current" and wanted not in memory.readied:
            memory.breach(f"Current at generation {generation}, before a pod of {wanted} was ready")

    def _check_words(self, body: Body, status: Body) -> None:
        resolved = {one["type"]: one["status"] for one in status["conditions"]}.get("ModelResolved")
        if resolved != "True":
            return
        model = body["spec"]["model"]
        words = (model["uri"], model["revision"], model.get("refreshToken", ""))
        commit = status["model"]["resolvedRevision"]
        if self._memory.commits.setdefault(words, commit) != commit:
            self._memory.breach(f"{words} were {self._memory.commits[words]} and are now {commit}")

    def _check_template(self, body: Body) -> None:
        template, metadata = body["spec"]["template"], body["metadata"]
        image = template["spec"]["containers"][0]["image"]
        timeless = json.loads(json.dumps(template).replace(image, "IMAGE"))
        made = {metadata["uid"]: digest(template), metadata["labels"][LABEL_REVISION]: digest(timeless)}
        for subject, seen in made.items():
            if self._memory.templates.setdefault(subject, seen) != seen:
                self._memory.breach(f"the template of {metadata['name']} changed: {template}")


class Kubelet:
    """Makes pods ready, a few looks after they appeared."""

    def __init__(self, stage: Stage, memory: Memory, draw: random.Random) -> None:
        self._stage = stage
        self._memory = memory
        self._draw = draw

    def look(self) -> None:
        for pod in self._stage.pods():
            waiting = not pod.get("status", {}).get("podIP")
            if waiting and self._draw.random() < 0.5:
                self._make_ready(pod)

    def _make_ready(self, pod: Body) -> None:
        with self._memory.lock:
            self._memory.readied.add(pod["metadata"]["labels"][LABEL_REVISION])
        try:
            self._stage.make_ready([pod])
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 404:  # deleted meanwhile
                raise


class Git:
    """Words at random, most of them said before."""

    def __init__(self, stage: Stage, memory: Memory, draw: random.Random) -> None:
        self._stage = stage
        self._memory = memory
        self._draw = draw
        self.words: Body = {}
        self._history: list[Body] = []

    def edit(self) -> None:
        if self._history and self._draw.random() < 0.5:
            self.write(self._draw.choice(self._history))
        else:
            self.write(self._new_words())

    def _new_words(self) -> Body:
        draw = self._draw
        model: Body = {"uri": f"hf://{REPO}", "revision": draw.choice(["main", "v1", "v2"])}
        if draw.random() < 0.3:
            model["refreshToken"] = draw.choice(["again", "and again"])
        return {
            "model": model,
            "resources": {"cpu": draw.choice(["500m", "1"])},
            "replicas": draw.choice([1, 1, 2]),
            "rollout": {
                "revisionHistoryLimit": draw.choice([0, 1, 5]),
                "drainSeconds": 5,
                "gate": {"load": False},
            },
        }

    def write(self, spec: Body) -> None:
        self.words = spec
        self._history.append(spec)
        body = {
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": NAME, "labels": LABELS, "annotations": ANNOTATIONS},
            "spec": spec,
        }
        answer = self._stage.client.patch(
            self._stage.path(PLURAL, NAME),
            params={"fieldManager": "gitops", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(body),
        ).raise_for_status()
        stored = answer.json()
        with self._memory.lock:
            self._memory.specs[stored["metadata"]["generation"]] = stored["spec"]


class Play:
    """The roles on one stage."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.draw = random.Random(seed)
        self.memory = Memory()
        self.git = Git(stage, self.memory, self.draw)
        self._end = threading.Event()
        looks = (Witness(stage, self.memory).look, Kubelet(stage, self.memory, random.Random(seed + 1)).look)
        self._threads = [threading.Thread(target=self._repeat, args=(look,)) for look in looks]
        self._errors: list[BaseException] = []

    def __enter__(self) -> Play:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, look: Callable[[], None]) -> None:
        while not self._end.wait(LOOK_SECONDS):
            try:
                look()
            except Exception as error:
                self._errors.append(error)
                return

    def act(self) -> str:
        """One act: a few edits, perhaps while the hub moves or the operator goes and comes."""
        kind = self.draw.choice(["edits", "edits", "edits", "hub moves", "restart", "kill", "upgrade"])
        self.git.edit()
        if kind == "hub moves":
            self.stage.add_commit(f"note {self.draw.random()}")
        elif kind != "edits":
            self._change_operator(kind)
        for _ in range(self.draw.randrange(3)):
            self.git.edit()
        return kind

    def _change_operator(self, kind: str) -> None:
        self.stage.stop_operator(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        if kind == "upgrade":
            self.stage.engine_image = f"example.test/engine:{self.draw.randrange(10**6)}"
        self.git.edit()
        self.stage.start_operator()

    def settle(self) -> Body:
        """Until the object is Current, as it must be in the end whatever was done to it."""

        def read() -> Body | None:
            self.check()
            self.stage.require_operator()
            body = self.stage.service(NAME)
            return body if kstatus(body) == "Current" else None

        return wait_for(read, "the object to be Current")

    def check(self) -> None:
        assert not self._errors, self._errors
        assert not self.memory.breaches, "\n".join(self.memory.breaches)
