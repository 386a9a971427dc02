"""An edit of the model's revision and its Git-style revert, under a client that never stops."""

from __future__ import annotations

from tests.e2e.engine_client import SteadyClient, connect_to_service, engine_info, reach_service
from tests.e2e.stack import SMOLLM2, Stack, only_ready_pod, small_spec, wait_ready
from tests.e2e.waiting import wait_until


def serve_revision(stack: Stack, namespace: str, revision: str) -> str:
    """Apply the service at a revision, wait until its pod alone serves, and give the loaded commit."""
    service = stack.apply(namespace, "edited", small_spec(revision=revision))
    status = wait_ready(service)
    commit = status["model"]["resolvedRevision"]
    connect = connect_to_service(stack.cluster.netns, service)
    wait_until(service.pods, lambda pods: len(pods) == 1, seconds=240, what="one pod left")
    only_ready_pod(service)
    assert f'revision="{commit}"' in engine_info(connect)
    return str(commit)


def test_edit_and_revert_bring_the_other_commit_and_the_first_one_back(stack, namespace) -> None:
    first = stack.store.resolve(SMOLLM2, "v1").sha
    second = stack.publish(SMOLLM2, "Second", branch="edited")
    service = stack.apply(namespace, "edited", small_spec(revision="v1"))
    wait_ready(service)
    connect = reach_service(stack.cluster.netns, service)
    assert serve_revision(stack, namespace, "v1") == first

    with SteadyClient(connect=connect, model="edited") as client:
        assert serve_revision(stack, namespace, second) == second
        assert serve_revision(stack, namespace, "v1") == first

    commits = client.answered
    assert not client.failures
    assert any(first[:12] in seen for seen in commits) and any(second[:12] in seen for seen in commits)
    assert first[:12] in commits[-1]
