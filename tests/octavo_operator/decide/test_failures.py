"""Why a revision is not ready, in the words of kubelet, scheduler and our own containers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.failures import find_failure
from octavo_operator.decide.observed import (
    ContainerView,
    DeploymentView,
    PodView,
    parse_deployment,
    parse_pod,
    parse_termination_message,
    pods_of,
)
from tests.octavo_operator.builders import make_container, make_deployment, make_pod


def said(reason: str, message: str = "want 2, have 1") -> str:
    return json.dumps({"reason": reason, "message": message})


def ended(message: str, **container: Any) -> dict[str, Any]:
    return {"exit_code": 1, "termination_message": message, **container}


NAMED = [
    ("ImagePullFailed", False, {"waiting_reason": "ImagePullBackOff"}),
    ("ImagePullFailed", False, {"waiting_reason": "ErrImagePull"}),
    ("CreateContainerConfigError", False, {"waiting_reason": "CreateContainerConfigError"}),
    ("OutOfMemory", True, {"exit_code": 137, "terminated_reason": "OOMKilled"}),
    ("DigestMismatch", True, ended(said("DigestMismatch"))),
    ("HubUnavailable", False, ended(said("HubUnavailable"))),
    ("DiskFull", False, ended(said("DiskFull"), name="fetch")),
    ("InsufficientMemory", True, ended(said("InsufficientMemory"))),
    ("EngineFailed", False, ended("boom")),
    ("FetchFailed", False, ended("boom", name="fetch")),
    ("EngineFailed", False, ended("", waiting_reason="CrashLoopBackOff")),
]


@pytest.mark.parametrize(("reason", "lasting", "container"), NAMED, ids=str)
def test_failure_is_named(reason: str, lasting: bool, container: dict[str, Any]) -> None:
    failure = find_failure([make_pod(containers=(make_container(**container),))], None)
    assert failure is not None
    assert (failure.reason, failure.lasting, failure.exit_code) == (
        reason,
        lasting,
        container.get("exit_code"),
    )


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(), id="fresh"),
        pytest.param(
            make_pod(containers=(make_container(waiting_reason="PodInitializing"),)), id="initializing"
        ),
        pytest.param(make_pod(containers=(make_container(name="fetch", exit_code=0),)), id="fetched"),
        pytest.param(
            make_pod(ready=True, containers=(make_container(exit_code=1),)), id="ready after a failure"
        ),
    ],
)
def test_pod_has_no_failure_when_it_is_on_its_way(pod: PodView) -> None:
    assert find_failure([pod], make_deployment("aaa")) is None


def test_failure_names_the_scheduler_when_no_node_fits() -> None:
    failure = find_failure([make_pod(unschedulable="0/1 nodes: Insufficient cpu")], None)
    assert failure is not None
    assert failure.reason == "Unschedulable"
    assert "Insufficient cpu" in failure.message


def test_claim_that_is_missing_is_named() -> None:
    words = '0/1 nodes are available: persistentvolumeclaim "models" not found. preemption: 0/1 nodes.'
    failure = find_failure([make_pod(unschedulable=words)], None)
    assert failure is not None
    assert (failure.reason, failure.lasting) == ("ClaimMissing", False)
    assert "PersistentVolumeClaim models" in failure.message


def test_lasting_failure_comes_first_when_pods_differ() -> None:
    waiting = make_pod(name="a", unschedulable="no room")
    broken = make_pod(
        name="b", containers=(make_container(exit_code=1, termination_message=said("FileMissing")),)
    )
    failure = find_failure([waiting, broken], None)
    assert failure is not None
    assert failure.reason == "FileMissing"


def test_failure_of_the_deployment_is_told_when_there_are_no_pods() -> None:
    failure = find_failure([], make_deployment("aaa", failure="exceeded quota"))
    assert failure is not None
    assert (failure.reason, failure.lasting) == ("PodsRefused", False)


NOT_OURS = ["", "null", "[1]", '"x"', "{}", '{"reason": "A"}', "\x00", "[" * 100_000]
NO_WORDS = [said("no word"), said("A" * 65), said(""), json.dumps({"reason": 5, "message": "x"})]


@pytest.mark.parametrize("text", NOT_OURS + NO_WORDS, ids=lambda text: text[:30])
def test_termination_message_is_none_when_it_is_not_ours(text: str) -> None:
    assert parse_termination_message(text) is None


@given(st.text())
def test_any_termination_message_gives_a_failure(text: str) -> None:
    failure = find_failure(
        [make_pod(containers=(make_container(exit_code=1, termination_message=text),))], None
    )
    assert failure is not None
    assert failure.reason


def test_parsing_forgives_objects_with_nothing_in_them() -> None:
    assert parse_pod({"metadata": {"name": "x"}}) == make_pod("", name="x", address="")
    empty = DeploymentView(
        revision="", wanted=1, existing=0, settled=True, deadline_exceeded=False, failure=""
    )
    assert parse_deployment({"metadata": {}}) == empty


def test_pod_is_parsed_as_the_kubelet_writes_it() -> None:
    body = {
        "metadata": {"name": "chat-1", "labels": {"octavo.dev/revision": "aaa"}, "deletionTimestamp": "now"},
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
            ],
            "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [
                {
                    "name": "engine",
                    "restartCount": 2,
                    "imageID": f"example.test/engine@sha256:{'0f' * 32}",
                    "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "words"}},
                }
            ],
        },
    }
    pod = parse_pod(body)
    assert (pod.name, pod.revision, pod.address, pod.ready, pod.terminating) == (
        "chat-1",
        "aaa",
        "10.1.2.3",
        True,
        True,
    )
    assert pod.unschedulable == "no room"
    assert pod.containers[1] == ContainerView(
        name="engine",
        waiting_reason="",
        waiting_message="",
        terminated_reason="OOMKilled",
        exit_code=137,
        termination_message="words",
        running=True,
        image_id=f"example.test/engine@sha256:{'0f' * 32}",
    )
    assert pods_of([pod], "aaa") == ()


def test_deployment_is_parsed_as_its_controller_writes_it() -> None:
    body = {
        "metadata": {"labels": {"octavo.dev/revision": "edited"}, "generation": 2},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"octavo.dev/revision": "aaa"}}},
        "status": {
            "replicas": 2,
            "observedGeneration": 1,
            "conditions": [
                {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
                {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"},
            ],
        },
    }
    assert parse_deployment(body) == make_deployment(
        "aaa", wanted=3, existing=2, settled=False, deadline_exceeded=True, failure="exceeded quota"
    )
