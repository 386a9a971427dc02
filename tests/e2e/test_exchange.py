"""One replica and no room for a second: stop, then start; said in status, bounded, undone if it fails."""

from __future__ import annotations

import time
from typing import Any

from tests.demo.service import ServiceRef
from tests.e2e.engine_client import ask, reach_service, wait_answers
from tests.e2e.stack import SMOLLM2, Stack, is_pod_ready, small_spec, wait_ready
from tests.e2e.waiting import wait_until
from tests.support.model_hub import FAULTY

NAME = "exchanged"
OUTAGE_SECONDS = 240
"""To end one engine, whose drain is short, and to start another on two busy cores."""


def in_place(uri: str = f"hf://{SMOLLM2}", **model: str) -> dict[str, Any]:
    spec = small_spec(uri, **model)
    spec["rollout"] |= {"strategy": "InPlace"}
    return spec


def wait_available(service: ServiceRef, status: str) -> float:
    """The moment at which it was seen."""
    wait_until(
        lambda: service.condition("Available"),
        lambda seen: seen.get("status") == status,
        seconds=OUTAGE_SECONDS,
        what=f"Available={status}",
    )
    return time.monotonic()


def running(service: ServiceRef) -> list[str]:
    """Revisions whose engines run; a pod that only ends does not count."""
    pods = [pod for pod in service.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [pod["metadata"]["labels"]["octavo.dev/revision"] for pod in pods]


def test_exchange_of_one_replica_is_a_bounded_outage_that_status_tells(stack: Stack, namespace: str) -> None:
    first = stack.store.resolve(SMOLLM2, "v1").sha
    second = stack.publish(SMOLLM2, "Second of the exchange", branch="exchange")
    service = stack.apply(namespace, NAME, in_place(revision=first))
    old = wait_ready(service)["currentRevision"]

    stack.apply(namespace, NAME, in_place(revision=second))
    down = wait_available(service, "False")
    assert old not in running(service), "the old one must end before the new one starts"
    wait_until(
        lambda: service.condition("Ready")["message"],
        lambda words: "nothing answers until it is ready" in words,
        seconds=60,
        what="the outage in status",
    )
    status = wait_ready(service)
    assert time.monotonic() - down < OUTAGE_SECONDS
    assert status["model"]["resolvedRevision"] == second
    connect = reach_service(stack.cluster.netns, service)
    assert second[:12] in ask(connect, NAME, "Say hello.", max_tokens=4)["system_fingerprint"]

    stack.apply(namespace, NAME, in_place(f"hf://{FAULTY.digest_mismatch}"))
    wait_available(service, "False")
    wait_available(service, "True")
    failed = service.read()["status"]
    assert failed["lastFailure"]["reason"] == "DigestMismatch"
    assert failed["lastKnownGood"]["resolvedRevision"] == second
    assert any(is_pod_ready(pod) for pod in service.pods())
    wait_answers(connect)
    assert second[:12] in ask(connect, NAME, "Say hello.", max_tokens=4)["system_fingerprint"]
