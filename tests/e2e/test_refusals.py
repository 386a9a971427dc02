"""What cannot work says why, in words that name need and have, while everything else keeps serving."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.engine_client import ask, connect_to_service, reach_service
from tests.e2e.stack import small_spec, wait_ready, wait_refused
from tests.e2e.traffic import crowd_on
from tests.support.model_hub import FAULTY

WEIGHTS = "model.safetensors"


@pytest.fixture
def serving_others(stack, bystander) -> Iterator[None]:
    """While the test runs, another service answers every request, and a new one still gets ready."""
    connect = connect_to_service(stack.cluster.netns, bystander)
    with crowd_on(connect, bystander.name, max_tokens=4) as crowd:
        crowd.grow()
        yield
        crowd.clients[0].await_answer()
    assert not crowd.failures


def test_wrong_repository_is_refused_by_name(stack, namespace, serving_others) -> None:
    service = stack.apply(namespace, "wrong-repository", small_spec("hf://octavo-tests/does-not-exist"))
    message = wait_refused(service, "RepositoryNotFound")
    assert "octavo-tests/does-not-exist" in message
    assert not service.pods()


def test_wrong_revision_is_refused_by_name(stack, namespace, serving_others) -> None:
    service = stack.apply(namespace, "wrong-revision", small_spec(revision="no-such-branch"))
    assert "no-such-branch" in wait_refused(service, "RevisionNotFound")
    assert not service.pods()


def test_missing_file_is_refused_by_name(stack, namespace, serving_others) -> None:
    service = stack.apply(namespace, "missing-file", small_spec(f"hf://{FAULTY.missing_file}"))
    assert WEIGHTS in wait_refused(service, "FileMissing")


def test_digest_mismatch_is_refused_by_file_and_digest(stack, namespace, serving_others) -> None:
    service = stack.apply(namespace, "corrupt-file", small_spec(f"hf://{FAULTY.digest_mismatch}"))
    message = wait_refused(service, "DigestMismatch")
    assert WEIGHTS in message
    assert len(re.findall(r"[0-9a-f]{12,}", message)) >= 2, message


def test_memory_that_cannot_hold_the_weights_names_need_and_have(stack, namespace, serving_others) -> None:
    spec = small_spec(revision="v1") | {"resources": {"cpu": "500m", "memory": "200Mi"}}
    service = stack.apply(namespace, "too-small", spec)
    message = wait_refused(service, "InsufficientMemory")
    assert "200" in message
    assert len(re.findall(r"\d[\d.]* [MG]iB", message)) >= 2, message
    assert not service.pods()


def test_refused_service_serves_once_its_spec_is_mended(stack, namespace, serving_others) -> None:
    spec = small_spec(revision="no-such-branch")
    service = stack.apply(namespace, "mended", spec)
    wait_refused(service, "RevisionNotFound")
    wait_ready(stack.apply(namespace, "mended", small_spec(revision="v1")))
    connect = reach_service(stack.cluster.netns, service)
    answer = ask(connect, "mended", "What is the capital of France?")
    assert "Paris" in answer["choices"][0]["message"]["content"]
