"""Nothing outlives its resource, and no namespace hangs on the operator."""

from __future__ import annotations

from tests.e2e.stack import Stack, small_spec, wait_ready
from tests.e2e.waiting import wait_until

CHILD_KINDS = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,controllerrevisions,"
    "serviceaccounts,poddisruptionbudgets,events"
)


def children(stack: Stack, namespace: str, service: str) -> list[str]:
    found = stack.kubectl.items(CHILD_KINDS, "--namespace", namespace)
    return [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in found
        if item["kind"] != "Event" and item["metadata"]["name"].startswith(service)
    ]


def test_deleting_the_resource_removes_all_it_made(stack, namespace) -> None:
    service = stack.apply(namespace, "deleted", small_spec(revision="v1"))
    wait_ready(service)
    assert children(stack, namespace, "deleted")
    assert not service.read()["metadata"].get("finalizers")

    stack.kubectl.run("delete", *service.scope, service.qualified, timeout=180)
    wait_until(
        lambda: children(stack, namespace, "deleted"),
        lambda left: not left,
        seconds=180,
        what="every child gone",
    )


def test_namespace_is_deleted_when_the_operator_is_stopped(stack, namespace) -> None:
    service = stack.apply(namespace, "orphan", small_spec(revision="v1"))
    wait_ready(service)
    stack.scale_operator(0)
    try:
        stack.kubectl.run("delete", "namespace", namespace, "--wait", timeout=180)
        assert stack.kubectl.attempt("get", "namespace", namespace).returncode != 0
    finally:
        stack.scale_operator(1)
