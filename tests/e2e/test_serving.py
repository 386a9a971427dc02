"""The sample manifest on a real kubelet: it gets ready, answers in English, and serves what was pinned."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import openai
import pytest
import yaml

from tests.demo.chat import Connect, get_text, read_metrics
from tests.demo.installation import ensure_namespace
from tests.demo.service import ServiceRef
from tests.e2e.engine_client import (
    ask,
    connect_to_pod,
    connect_to_service,
    engine_info,
    reach_service,
)
from tests.e2e.stack import SMOLLM2, Stack, is_pod_ready, only_ready_pod, wait_ready
from tests.e2e.traffic import crowd_on
from tests.e2e.waiting import stays_true, wait_until
from tests.install.paths import SAMPLE

NAMESPACE = "serving"
WATCH_SECONDS = 15
NUM_CLIENTS = 24
"""Fewer than the sample's engine has places for, and by far fewer than its cache has."""


@pytest.fixture(scope="module")
def sample(stack: Stack) -> Iterator[ServiceRef]:
    """The project's own sample, applied as it lies in manifests/samples."""
    manifest = yaml.safe_load(SAMPLE.read_text())
    ensure_namespace(stack.kubectl, NAMESPACE)
    service = stack.apply(NAMESPACE, manifest["metadata"]["name"], manifest["spec"])
    wait_ready(service)
    reach_service(stack.cluster.netns, service)
    yield service
    stack.remove_namespace(NAMESPACE)


@pytest.fixture
def connect(stack: Stack, sample: ServiceRef) -> Connect:
    return connect_to_service(stack.cluster.netns, sample)


def test_sample_answers_a_plain_question_sensibly(sample, connect) -> None:
    answer = ask(connect, sample.name, "What is the capital of France?")
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0


def test_sample_streams_to_the_official_client_over_a_port_forward(sample) -> None:
    with sample.kubectl.port_forward(*sample.scope, f"service/{sample.name}", port=8000) as port:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        question = {"role": "user", "content": "What is the capital of France?"}
        stream = client.chat.completions.create(
            model=sample.name, messages=[question], max_tokens=24, temperature=0, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len(pieces) > 3
    assert "Paris" in "".join(pieces)


def test_loaded_commit_equals_the_resolved_revision(stack, sample, connect) -> None:
    commit = sample.read()["status"]["model"]["resolvedRevision"]
    assert commit == stack.store.resolve(SMOLLM2, "main").sha
    assert commit in get_text(connect, "/version")
    assert f'revision="{commit}"' in engine_info(connect)
    assert commit[:12] in ask(connect, sample.name, "Hello")["system_fingerprint"]


def test_plan_in_status_is_what_the_engine_allocated(sample, connect) -> None:
    plan = sample.read()["status"]["memoryPlan"]
    assert f'num_gpu_blocks="{plan["kvBlocks"]}"' in get_text(connect, "/metrics")


def test_printed_columns_show_readiness_and_revision(sample) -> None:
    printed = sample.kubectl.run("get", *sample.scope, sample.qualified, "-o", "wide")
    assert "True" in printed
    assert sample.read()["status"]["model"]["resolvedRevision"][:12] in printed


def test_engine_pods_keep_to_restricted_security(sample) -> None:
    pod = only_ready_pod(sample)["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert not [volume for volume in pod["volumes"] if "projected" in volume]
    for container in (*pod["initContainers"], *pod["containers"]):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False


def test_engine_process_is_not_root_and_holds_no_token(sample) -> None:
    pod = only_ready_pod(sample)["metadata"]["name"]
    inside = ("exec", *sample.scope, pod, "--container", "engine", "--")
    assert sample.kubectl.run(*inside, "id", "-u").strip() == "10001"
    for refused in (
        ("ls", "/var/run/secrets/kubernetes.io/serviceaccount"),
        ("touch", "/root-file-system-is-writable"),
    ):
        assert sample.kubectl.attempt(*inside, *refused).returncode != 0


def test_operator_image_holds_no_torch(stack) -> None:
    pod = stack.operator_pod()["metadata"]
    inside = ("exec", "--namespace", pod["namespace"], pod["name"], "--", "python", "-c")
    stack.kubectl.run(*inside, "import octavo_operator.shell")
    refused = stack.kubectl.attempt(*inside, "import torch")
    assert "No module named 'torch'" in refused.stderr


def test_service_answers_while_the_operator_is_stopped_and_keeps_its_pod_when_it_returns(
    stack, sample, connect
) -> None:
    before = [pod["metadata"]["uid"] for pod in sample.pods()]
    stack.scale_operator(0)
    try:
        assert ask(connect, sample.name, "Hello")["choices"]
    finally:
        stack.scale_operator(1)
    wait_ready(sample)
    stays_true(
        lambda: [pod["metadata"]["uid"] for pod in sample.pods()],
        lambda uids: uids == before,
        seconds=WATCH_SECONDS,
    )


def test_recommendation_names_tpot_when_the_objective_is_missed_before_the_cache_is_full(
    stack, sample, connect
) -> None:
    """Far from either end: a step takes at least so long, and this long with all the places taken."""
    (pod,) = sample.pods()
    recommend(sample, tpotMilliseconds=20_000)
    with crowd_on(connect, sample.name, max_tokens=64) as crowd:
        crowd.grow()
        time.sleep(20)  # so that what every step takes is told from what each sequence adds
        crowd.grow(NUM_CLIENTS - 1)
        seen = wait_until(
            stack.scaling_figures,
            lambda now: now.get("demand_requests_per_second", 0) > 0,
            seconds=150,
            what="what the operator has learned of the load",
        )
        between = math.sqrt(seen["step_base_seconds"] * seen["tpot_seconds"])
        recommend(sample, tpotMilliseconds=round(1000 * between))
        said = wait_until(
            lambda: sample.read()["status"]["autoscaling"],
            lambda now: now["limitedBy"] == "TPOT",
            seconds=150,
            what=f"TPOT named, with an objective of {between:.3f} s, after {seen}",
        )
        cache = read_metrics(connect_to_pod(stack.cluster.netns, pod))
    assert "req/s per replica (TPOT-bound at " in said["message"]
    assert said["reason"] == "Recommended"
    assert cache["vllm:kv_cache_usage_perc"] < 0.5
    assert not crowd.failures
    sample.patch({"autoscaling": None})
    assert [one["metadata"]["uid"] for one in sample.pods()] == [pod["metadata"]["uid"]]


def recommend(service: ServiceRef, **slo: int) -> None:
    """The operator says how many replicas it would set, and sets none."""
    objective = {"ttftMilliseconds": 600_000, **slo}
    service.patch({"autoscaling": {"mode": "Recommend", "maxReplicas": 4, "slo": objective}})


def test_moving_the_hubs_main_changes_nothing(stack, sample, connect) -> None:
    """Neither in the running pod nor in one that replaces it."""
    before = only_ready_pod(sample)
    commit = sample.read()["status"]["model"]["resolvedRevision"]
    moved = stack.publish(SMOLLM2, "Moved on")
    assert moved != commit

    stays_true(
        lambda: [pod["metadata"]["uid"] for pod in sample.pods()],
        lambda uids: uids == [before["metadata"]["uid"]],
        seconds=WATCH_SECONDS,
    )
    stack.kubectl.run("delete", "pod", *sample.scope, before["metadata"]["name"], timeout=180)
    replacement = wait_until(
        lambda: [pod for pod in sample.pods() if is_pod_ready(pod)],
        lambda pods: [pod for pod in pods if pod["metadata"]["uid"] != before["metadata"]["uid"]],
        seconds=240,
        what="a replacement pod ready",
    )[0]
    assert f'revision="{commit}"' in engine_info(connect_to_pod(stack.cluster.netns, replacement))
    assert sample.read()["status"]["model"]["resolvedRevision"] == commit
