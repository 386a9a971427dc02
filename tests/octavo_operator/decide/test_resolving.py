"""What a resolver pod says, whatever becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.model_report import ModelReport, encode_model_report
from octavo_operator.api.status import InferenceServiceStatus
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.next_state import build_resolver_removals, decide_next_state
from octavo_operator.decide.resolving import ResolverView, is_resolver, parse_resolver, read_lookup
from octavo_operator.decide.rollout.values import GateFacts
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.world import Children, parse_world
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod
from tests.octavo_operator.builders import COMMIT, NOW, OWNER, make_spec, make_world

QUESTION = Question(
    model=make_spec(model={"uri": "pvc://models/qwen"}).model,
    revision="main",
    image="example.test/engine:1",
    hub_endpoint="",
)
REPORT = ModelReport(
    commit=COMMIT, manifest_digest=f"sha256:{'ab' * 32}", size_bytes=7, config={"model_type": "llama"}
)


def view(status: dict[str, Any]) -> ResolverView:
    return parse_resolver({**build_resolver_pod(OWNER, QUESTION), "status": status})


def ended(phase: str, message: str = "", *, code: int = 1, why: str = "Error") -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": why, "message": message}
    container = {"name": "resolve", "state": {"terminated": terminated}}
    return {"phase": phase, "containerStatuses": [container]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    container = {"name": "resolve", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [container]}


def unschedulable(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def test_report_is_taken_as_it_was_written() -> None:
    lookup = read_lookup(view(ended("Succeeded", encode_model_report(REPORT), code=0)), "words")
    assert lookup.report == REPORT
    assert lookup.ended


FAILED_GATED = ended("Failed", '{"reason": "AccessDenied", "message": "accept its terms"}', code=12)
FAILED_HUB = ended("Failed", '{"reason": "HubUnavailable", "message": "503"}', code=75)
CLAIM = 'persistentvolumeclaim "models" not found. not found'


@pytest.mark.parametrize(
    ("status", "reason", "lasting", "is_over", "text"),
    [
        pytest.param(FAILED_GATED, "AccessDenied", True, True, "accept its terms", id="gated"),
        pytest.param(FAILED_HUB, "HubUnavailable", False, True, "503", id="outage"),
        pytest.param(ended("Succeeded", "hello"), "ResolverFailed", True, True, "image", id="other image"),
        pytest.param(
            ended("Succeeded", encode_model_report(REPORT)[:-9]), "ResolverFailed", True, True, "", id="cut"
        ),
        pytest.param({"phase": "Succeeded"}, "ResolverFailed", True, True, "report", id="no container"),
        pytest.param(
            ended("Failed", code=137, why="OOMKilled"), "ResolverFailed", False, True, "137", id="memory"
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted"}, "ResolverFailed", False, True, "Evicted", id="evicted"
        ),
        pytest.param(
            {"phase": "Failed", "reason": "DeadlineExceeded"},
            "ResolverTimeout",
            False,
            True,
            "time",
            id="late",
        ),
        pytest.param(unschedulable(CLAIM), "ClaimMissing", False, False, "models", id="no claim"),
        pytest.param(unschedulable("0/3 nodes"), "Unschedulable", False, False, "0/3 nodes", id="no node"),
        pytest.param(
            waiting("ErrImagePull", "no such image"), "ImagePullFailed", False, False, "no such", id="image"
        ),
        pytest.param(
            waiting("CreateContainerError", "no room"),
            "CreateContainerError",
            False,
            False,
            "no room",
            id="runtime",
        ),
        pytest.param(waiting("ContainerCreating"), "Resolving", False, False, "chat-resolve-", id="starting"),
        pytest.param({}, "Resolving", False, False, "chat-resolve-", id="new"),
        pytest.param({"phase": "Running"}, "Resolving", False, False, "chat-resolve-", id="running"),
    ],
)
def test_resolver_that_has_no_report_says_why(
    status: dict[str, Any], reason: str, lasting: bool, is_over: bool, text: str
) -> None:
    lookup = read_lookup(view(status), "pvc://models/qwen at main")
    assert lookup.refusal is not None
    assert (lookup.refusal.reason, lookup.refusal.lasting, lookup.ended) == (reason, lasting, is_over)
    assert text in lookup.refusal.message
    assert lookup.refusal.at_hub is is_over, "what has ended is tried again after a while"


def test_waiting_is_no_failure_and_worries_nobody() -> None:
    waits = read_lookup(view({"phase": "Running"}), "words").refusal
    gated = read_lookup(view(FAILED_GATED), "words").refusal
    fixed = ScalingDecision(replicas=1, reason="Static", message="fixed")
    world = make_world()

    def status_of(refusal: Refusal | None) -> InferenceServiceStatus:
        return decide_next_state(world, Target(refusal=refusal), fixed, now=NOW, gates=GateFacts()).status

    failure = status_of(gated).last_failure
    assert failure is not None
    assert failure.reason == "AccessDenied"
    waiting = status_of(waits)
    assert waiting.last_failure is None
    assert {draft.reason: draft.type for draft in draft_events(world.status, waiting)} == {
        "Resolving": "Normal"
    }


def test_pods_nobody_waits_for_are_removed() -> None:
    told, awaited = view(ended("Succeeded")), view({"phase": "Running"})
    world = make_world(resolvers=(told,))
    waits = Refusal(reason="Resolving", message="", lasting=False)
    assert [one.name for one in build_resolver_removals(world, Target(refusal=waits))] == [told.pod.name]
    world = make_world(resolvers=(awaited,))
    assert build_resolver_removals(world, Target(refusal=waits, question=QUESTION.id)) == []
    leaving = parse_resolver(terminating(build_resolver_pod(OWNER, QUESTION)))
    assert build_resolver_removals(make_world(resolvers=(leaving,)), Target(refusal=waits)) == []


def terminating(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def test_resolver_is_no_engine_and_one_of_an_earlier_object_is_nobodys() -> None:
    pod = build_resolver_pod(OWNER, QUESTION)
    assert is_resolver(pod)
    service = {
        "metadata": {"name": OWNER.name, "namespace": OWNER.namespace, "uid": OWNER.uid, "generation": 1},
        "spec": {"model": {"uri": "pvc://models/qwen"}},
    }
    world = parse_world(service, Children(pods=(pod,)))
    assert world.pods == ()
    assert [one.question for one in world.resolvers] == [QUESTION.id]
    again = {**service, "metadata": {**service["metadata"], "uid": "another"}}
    assert parse_world(again, Children(pods=(pod,))).resolvers == ()
