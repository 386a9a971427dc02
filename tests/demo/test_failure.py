"""When a step of the demo fails, it says which, why, what the cluster shows and where the logs are."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.demo.__main__ import narrated
from tests.demo.kubectl import Kubectl, KubectlRefused
from tests.demo.service import ServiceRef, ServiceStalled, await_ready, describe_pod
from tests.demo.steps import Steps
from tests.demo.targets import Target

FAKE_KUBECTL = """\
#!/bin/sh
case "$1" in
  wait) sleep 60 ;;
  get) case "$*" in
    *pods*) echo '{"items": []}' ;;
    *) cat "$(dirname "$0")/service.json" ;;
  esac ;;
  *) echo "fake answer to $*" ;;
esac
"""
REASON = {"reason": "InsufficientMemory", "message": "needs 257 MiB, has 200 MiB"}
STALLED = [{"type": "Ready", "status": "False", **REASON}, {"type": "Stalled", "status": "True", **REASON}]


@pytest.fixture
def kubectl(tmp_path) -> Kubectl:
    program = tmp_path / "kubectl"
    program.write_text(FAKE_KUBECTL)
    program.chmod(0o755)
    (tmp_path / "service.json").write_text(json.dumps({"status": {"conditions": STALLED}}))
    return Kubectl(program=program, kubeconfig=None)


def test_stalled_service_ends_the_wait_with_its_reason(kubectl) -> None:
    said: list[str] = []
    service = ServiceRef(kubectl=kubectl, name="smollm2", namespace="")
    with pytest.raises(ServiceStalled, match="InsufficientMemory: needs 257 MiB, has 200 MiB"):
        await_ready(service, said.append)
    assert said == ["InsufficientMemory: needs 257 MiB, has 200 MiB"]


def test_failed_step_is_explained_and_the_exit_is_not_zero(capsys) -> None:
    def start(steps: Steps) -> Target:
        with steps.step("Start the cluster"):
            raise KubectlRefused("kubectl version: no route to host")

    assert narrated(Steps(total=1, out=io.StringIO()), start, "make demo-down") == 1
    said = capsys.readouterr().err
    assert "FAILED in: Start the cluster" in said
    assert "no route to host" in said
    assert "--- Logs" in said
    assert "Traceback" not in said


def test_mistake_of_the_demo_itself_keeps_its_traceback(capsys) -> None:
    def start(steps: Steps) -> Target:
        raise KeyError("typo")

    assert narrated(Steps(total=1, out=io.StringIO()), start, "make demo-down") == 1
    assert "Traceback" in capsys.readouterr().err


def test_failure_on_a_cluster_shows_its_resources_pods_events_and_operator_log(kubectl, capsys) -> None:
    def start(steps: Steps) -> Target:
        return Target(kubectl=kubectl, images=None, hub_endpoint="", log_folders=(Path("/nowhere"),))  # type: ignore[arg-type]

    assert narrated(Steps(total=4, out=io.StringIO()), start, "make demo-down") == 1
    said = capsys.readouterr().err
    for title in ("Their conditions", "Engine pods", "Recent events", "Operator log"):
        assert f"--- {title}: kubectl " in said
    assert "fake answer to logs --namespace octavo-system deployment/octavo-operator" in said


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param({"phase": "Pending"}, "Pending", id="not scheduled"),
        pytest.param(
            {
                "initContainerStatuses": [{"name": "fetch", "ready": False, "state": {"running": {}}}],
                "containerStatuses": [
                    {"name": "engine", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
                ],
            },
            "fetch running, not ready",
            id="fetching",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "engine", "ready": True, "state": {"running": {}}}]},
            "engine running",
            id="serving",
        ),
    ],
)
def test_pod_is_described_by_its_newest_container(status, words) -> None:
    assert describe_pod({"metadata": {"name": "p"}, "status": status}) == f"  pod p: {words}"
