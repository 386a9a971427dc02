"""Rollouts on a real kubelet, under clients that never stop and never try again.

One service goes through all of it, one test after another; each leaves it serving the first commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.demo.installation import Images, ensure_namespace
from tests.demo.service import ServiceRef
from tests.e2e.engine_client import connect_to_service, engine_info, reach_service
from tests.e2e.later_version import PROBE_TIMEOUT_SECONDS, VERSION, push_later_version
from tests.e2e.stack import SMOLLM2, Stack, small_spec, wait_ready
from tests.e2e.traffic import Traffic, traffic_on
from tests.e2e.waiting import stays_true, wait_until
from tests.support.model_hub import FAULTY

PLACE, NAME = "rollouts", "rolled"
WORSE = "octavo-tests/forgetful"
WEIGHTS = "model.safetensors"
ROLL_SECONDS = 300
SAY_VERSION = "from importlib.metadata import version; print(version('octavo'))"
PROBES = [{"prompt": "The capital of France is", "maxTokens": 8, "expect": "Paris"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The service and its clients."""

    stack: Stack
    service: ServiceRef
    traffic: Traffic
    first: str
    second: str

    def edit(self, uri: str = f"hf://{SMOLLM2}", *, args: list[str] | None = None, **model: str) -> float:
        """Apply other words; the moment of it."""
        spec = spec_of(uri, args=args or [], **model)
        self.stack.apply(PLACE, NAME, spec)
        return time.monotonic()

    def settle(self, commit: str) -> dict[str, Any]:
        """Until what was asked for serves alone, from the weights that its words say."""
        status = wait_ready(self.service, ROLL_SECONDS)
        wait_until(self.service.pods, lambda pods: len(pods) == 1, seconds=120, what="one pod left")
        self.traffic.await_answers()
        assert status["model"]["resolvedRevision"] == commit
        connect = connect_to_service(self.stack.cluster.netns, self.service)
        assert f'revision="{commit}"' in engine_info(connect)
        now = time.monotonic()
        self.traffic.await_answers()
        assert all(commit[:12] in fingerprint for fingerprint in self.traffic.since(now))
        return status

    def octavo(self, *words: str) -> None:
        """As a user types it, with the user's own rights."""
        program = (sys.executable, "-m", "octavo.cli.main", *words)
        place = ("--namespace", PLACE, "--kubeconfig", str(self.stack.cluster.kubeconfig))
        done = subprocess.run((*program, *place), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def revert(self) -> None:
        self.edit(revision=self.first)
        self.settle(self.first)

    def wait_failed(self, reason: str) -> dict[str, Any]:
        """The status once the candidate was given up."""

        def is_failed(resource: dict[str, Any]) -> bool:
            conditions = {one["type"]: one for one in resource["status"].get("conditions", ())}
            ready, seen = conditions["Ready"], resource["status"]["observedGeneration"]
            return ready["reason"] == reason and seen == resource["metadata"]["generation"]

        failed = wait_until(self.service.read, is_failed, seconds=ROLL_SECONDS, what=f"failed by {reason}")
        status: dict[str, Any] = failed["status"]
        told = {one["type"]: one["status"] for one in status["conditions"]}
        assert (told["Ready"], told["Available"], told["Stalled"]) == ("False", "True", "True")
        return status


def spec_of(uri: str, *, args: list[str], **model: str) -> dict[str, Any]:
    """With room for two of it beside everything else, and probes that the sample model knows."""
    spec = small_spec(uri, **model)
    spec["engine"]["args"] = args
    spec["resources"] = {"cpu": "400m"}
    quality = {"configMapRef": {"name": "probes"}, "minMatchPercent": 100}
    spec["rollout"]["gate"] = {"quality": quality}
    return spec


def publish_worse(stack: Stack) -> str:
    """The sample model with much of its weights gone: it loads, and knows nothing."""
    commit = stack.store.resolve(SMOLLM2, "v1")
    files: dict[str, Path | bytes] = {file.path: stack.store.content(file) for file in commit.files}
    weights = bytearray(Path(files[WEIGHTS]).read_bytes())  # type: ignore[arg-type]
    half = len(weights) // 2
    weights[half:] = bytes(len(weights) - half)
    return stack.store.add_commit(WORSE, files | {WEIGHTS: bytes(weights)}, message="forgetful")


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Iterator[Scene]:
    ensure_namespace(stack.kubectl, PLACE)
    probes = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probes", "namespace": PLACE},
        "data": {"probes.json": json.dumps(PROBES)},
    }
    stack.kubectl.run("apply", "--filename", "-", stdin=json.dumps(probes))
    first = stack.store.resolve(SMOLLM2, "v1").sha
    second = stack.publish(SMOLLM2, "Second of the rollouts", branch="rollouts")
    service = stack.apply(PLACE, NAME, spec_of(f"hf://{SMOLLM2}", args=[], revision=first))
    wait_ready(service)
    with traffic_on(reach_service(stack.cluster.netns, service), NAME) as traffic:
        traffic.await_answers()
        yield Scene(stack=stack, service=service, traffic=traffic, first=first, second=second)
    stack.remove_namespace(PLACE)


@pytest.fixture(autouse=True)
def no_request_fails(scene: Scene) -> Iterator[None]:
    """Whatever a test does: every request is answered, and every stream to its end."""
    yield
    scene.traffic.await_answers()
    assert not scene.traffic.failures


def test_revision_arguments_and_rollback_each_roll_over(scene: Scene) -> None:
    before = scene.service.read()["status"]["currentRevision"]
    edited = scene.edit(revision=scene.second)
    status = scene.settle(scene.second)
    assert status["lastKnownGood"]["resolvedRevision"] == scene.second
    assert "1 of 1 probes match" in status["lastKnownGood"]["evidence"]
    seen = scene.traffic.since(edited)
    turned = next(place for place, one in enumerate(seen) if scene.second[:12] in one)
    assert turned > 0, "the old one answered until the new one did"

    scene.edit(revision=scene.second, args=["--max-num-batched-tokens=256"])
    scene.settle(scene.second)
    (pod,) = scene.service.pods()
    assert "--max-num-batched-tokens=256" in pod["spec"]["containers"][0]["args"]

    scene.octavo("rollback", NAME, "--to", before)
    assert scene.settle(scene.first)["currentRevision"] == before


def test_broken_file_at_the_hub_is_given_up_and_the_last_known_good_stays(scene: Scene) -> None:
    (serving,) = scene.service.pods()
    edited = scene.edit(f"hf://{FAULTY.digest_mismatch}")
    status = scene.wait_failed("DigestMismatch")
    assert WEIGHTS in status["lastFailure"]["message"]
    assert status["lastKnownGood"]["resolvedRevision"] == scene.first
    wait_until(scene.service.pods, lambda pods: len(pods) == 1, seconds=120, what="the candidate gone")
    (left,) = scene.service.pods()
    assert left["metadata"]["uid"] == serving["metadata"]["uid"]
    assert all(scene.first[:12] in one for one in scene.traffic.since(edited))
    scene.revert()


def test_model_that_answers_worse_is_given_up_and_answers_nobody(scene: Scene) -> None:
    worse = publish_worse(scene.stack)
    edited = scene.edit(f"hf://{WORSE}", revision=worse)
    status = scene.wait_failed("QualityGateFailed")
    assert "0 of 1 probes match" in status["lastFailure"]["message"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["RolloutGatePassed"] == "False"
    scene.traffic.await_answers()
    assert all(scene.first[:12] in one for one in scene.traffic.since(edited)), "the candidate answered"
    scene.revert()


def test_revert_in_mid_rollout_leaves_the_serving_pod_alone(scene: Scene) -> None:
    (serving,) = scene.service.pods()
    scene.edit(revision=scene.second)
    wait_until(scene.service.pods, lambda pods: len(pods) == 2, seconds=120, what="a candidate")
    scene.revert()
    (left,) = scene.service.pods()
    assert left["metadata"]["uid"] == serving["metadata"]["uid"]


def test_rollout_goes_on_when_the_operator_is_killed_and_a_later_version_starts(
    scene: Scene, later: Images
) -> None:
    """What the earlier one has rolled out stays as it is, and what is new is the later one's."""
    stack = scene.stack
    scene.edit(revision=scene.second)
    wait_until(scene.service.pods, lambda pods: len(pods) == 2, seconds=120, what="a candidate")
    before, candidates = rolled_out(scene), pod_uids(scene)
    stack.kill_operator()
    stack.install(later)
    try:
        assert stack.in_operator(SAY_VERSION) == VERSION
        scene.settle(scene.second)
        assert pod_uids(scene) < candidates, "the later operator started another"
        assert_nothing_new_runs(scene, before)

        scene.edit(revision=scene.second, args=["--max-num-batched-tokens=128"])
        scene.settle(scene.second)
        (engine,) = scene.service.pods()[0]["spec"]["containers"]
        assert engine["image"] == later.engine
        assert engine["livenessProbe"]["timeoutSeconds"] == PROBE_TIMEOUT_SECONDS

        scene.revert()
        assert_nothing_new_runs(scene, before)
        left = pod_uids(scene)
    finally:
        stack.install(stack.images)
    stays_true(lambda: pod_uids(scene), lambda uids: uids == left, seconds=15)


@pytest.fixture
def later(scene: Scene) -> Images:
    return push_later_version(scene.stack.cluster, scene.stack.images)


def pod_uids(scene: Scene) -> set[str]:
    return {pod["metadata"]["uid"] for pod in scene.service.pods()}


def rolled_out(scene: Scene) -> dict[str, Any]:
    """The template of each ReplicaSet that has pods, whose name has its hash, and of each stored revision."""
    place = scene.service.scope
    sets = [one for one in scene.stack.kubectl.items("replicasets", *place) if one["spec"]["replicas"]]
    revisions = scene.stack.kubectl.items("controllerrevisions", *place)
    templates = [(one, one["spec"]["template"]) for one in sets] + [
        (one, one["data"]["template"]) for one in revisions
    ]
    return {f"{one['kind']}/{one['metadata']['name']}": template for one, template in templates}


def assert_nothing_new_runs(scene: Scene, before: dict[str, Any]) -> None:
    """All pods are of templates that were there before, and no stored template is another one now."""
    for name, template in rolled_out(scene).items():
        assert name in before or not name.startswith("ReplicaSet/"), f"{name} is a second rollout"
        assert template == before.get(name, template), f"{name} was changed"
