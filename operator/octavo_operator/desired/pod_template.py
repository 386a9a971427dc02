"""The engine's pod: fetch the pinned files, then serve them; restricted, and drained before it ends.

How a pod ends: preStop sleeps while endpoints forget the pod, then SIGTERM; the engine accepts with
`Connection: close` for a moment, refuses, and finishes what it has. The grace period holds all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from octavo import engine_contract as contract
from octavo.model_source import model_folder
from octavo.planning import MemoryPlan
from octavo.units import ceil_div
from octavo_operator.api import names
from octavo_operator.api.quantities import format_cpu, format_memory, parse_cpu_millis
from octavo_operator.api.spec import InferenceServiceSpec, SecretReference
from octavo_operator.desired.model_volume import (
    MODELS_VOLUME,
    build_linked_mounts,
    build_model_volumes,
    build_source_flags,
    build_source_mounts,
)
from octavo_operator.desired.overlay import apply_overlay
from octavo_operator.desired.service import PORT_NAME
from octavo_operator.desired.spread import build_spread

ENGINE_USER: Final = 10001
PRE_STOP_SECONDS: Final = 5
DRAIN_ACCEPT_SECONDS: Final = 5
GRACE_MARGIN_SECONDS: Final = 5
"""Left for the process itself to end after its drain."""

STARTUP_BASE_SECONDS: Final = 300
"""For the interpreter, its libraries and the first token on a slow CPU."""
STARTUP_BYTES_PER_SECOND: Final = 25_000_000
"""The slowest disk and CPU that loading is given time for."""
STARTUP_PERIOD_SECONDS: Final = 2
READY_PERIOD_SECONDS: Final = 5
LIVE_PERIOD_SECONDS: Final = 10
LIVE_FAILURES: Final = 6
"""A minute without a heartbeat of the engine's thread."""
PROBE_TIMEOUT_SECONDS: Final = 5
"""A throttled CPU in the middle of a long step may answer late."""

SCRATCH_VOLUME: Final = "tmp"
SCRATCH_PATH: Final = "/tmp"
PROGRESS_PORT_NAME: Final = "progress"
API_KEYS_KEY: Final = "apiKeys"
"""Of the Secret with the keys of clients."""

KV_DTYPE_FLAGS: Final = {"Auto": "auto", "Float32": "float32", "BFloat16": "bf16", "Float16": "fp16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInputs:
    """All that a pod template is made from."""

    service: str
    revision: str
    spec: InferenceServiceSpec
    commit: str
    image: str
    plan: MemoryPlan
    hub_endpoint: str
    manifest_digest: str = ""
    """Of the commit's files, where it is known."""


def build_pod_template(inputs: PodInputs) -> dict[str, Any]:
    selector = names.pod_selector(inputs.service, inputs.revision)
    template = {
        "metadata": {"labels": names.revision_labels(inputs.service, inputs.revision)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": grace_seconds(inputs.spec.rollout.drain_seconds),
            "securityContext": build_pod_security(),
            "topologySpreadConstraints": build_spread(selector),
            "initContainers": [build_fetch_container(inputs)],
            "containers": [build_engine_container(inputs)],
            "volumes": [
                *build_model_volumes(inputs.spec.model),
                {"name": SCRATCH_VOLUME, "emptyDir": {}},
            ],
        },
    }
    return apply_overlay(template, inputs.spec.template, selector)


def grace_seconds(drain_seconds: int) -> int:
    """From the first word of the end to the kill.

    >>> grace_seconds(120)
    135
    """
    return PRE_STOP_SECONDS + DRAIN_ACCEPT_SECONDS + drain_seconds + GRACE_MARGIN_SECONDS


def build_pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": ENGINE_USER,
        "runAsGroup": ENGINE_USER,
        "fsGroup": ENGINE_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def build_container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def build_fetch_container(inputs: PodInputs) -> dict[str, Any]:
    env = {"HOME": SCRATCH_PATH, "HF_HOME": f"{SCRATCH_PATH}/hf"}
    if inputs.hub_endpoint:
        env["HF_ENDPOINT"] = inputs.hub_endpoint
    args = [
        "fetch",
        *(contract.FLAG_FETCH_URI, inputs.spec.model.uri),
        *(contract.FLAG_FETCH_REVISION, inputs.commit),
        *(contract.FLAG_FETCH_TO, model_folder(inputs.commit)),
        *build_source_flags(inputs.spec.model),
        *(contract.FLAG_PROGRESS_PORT, str(contract.FETCH_PROGRESS_PORT)),
        *((contract.FLAG_MANIFEST_DIGEST, inputs.manifest_digest) if inputs.manifest_digest else ()),
    ]
    port = {
        "name": PROGRESS_PORT_NAME,
        "containerPort": contract.FETCH_PROGRESS_PORT,
        "protocol": "TCP",
    }
    return {
        **build_container(inputs, names.CONTAINER_FETCH, args, build_source_mounts(inputs.spec.model)),
        "env": build_env(env),
        "ports": [port],
    }


def build_engine_container(inputs: PodInputs) -> dict[str, Any]:
    env = {"HOME": SCRATCH_PATH, "HF_HUB_OFFLINE": "1"}
    user_env = {one.name: one.value for one in inputs.spec.engine.env}
    port = inputs.spec.routing.port
    return {
        **build_container(
            inputs, names.CONTAINER_ENGINE, build_engine_args(inputs), build_linked_mounts(inputs.spec.model)
        ),
        "env": build_engine_env({**env, **user_env}, inputs.spec.engine.api_key_secret_ref),
        "ports": [{"name": PORT_NAME, "containerPort": port, "protocol": "TCP"}],
        "startupProbe": build_startup_probe(inputs.plan.weights_bytes),
        "readinessProbe": build_probe(contract.READY_PATH, period=READY_PERIOD_SECONDS, failures=3),
        "livenessProbe": build_probe(
            contract.HEALTH_PATH, period=LIVE_PERIOD_SECONDS, failures=LIVE_FAILURES
        ),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
    }


def build_container(
    inputs: PodInputs, name: str, args: list[str], mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """What both containers share; equal resources, so that fetching does not raise the pod's request."""
    return {
        "name": name,
        "image": inputs.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["octavo-engine"],
        "args": args,
        "resources": build_resources(inputs),
        "securityContext": build_container_security(),
        "volumeMounts": [
            {"name": MODELS_VOLUME, "mountPath": contract.MODELS_ROOT},
            {"name": SCRATCH_VOLUME, "mountPath": SCRATCH_PATH},
            *mounts,
        ],
        "terminationMessagePath": contract.TERMINATION_LOG,
        "terminationMessagePolicy": "File",
    }


def build_env(variables: dict[str, str]) -> list[dict[str, str]]:
    """Empty values are left out, as the API server does."""
    return [
        {"name": name, "value": value} if value else {"name": name}
        for name, value in sorted(variables.items())
    ]


def build_engine_env(variables: dict[str, str], keys: SecretReference | None) -> list[dict[str, Any]]:
    """A pod without its Secret does not start, and the kubelet says so: nobody serves without the key."""
    plain: list[dict[str, Any]] = [*build_env(variables)]
    if keys is None:
        return plain
    source = {"secretKeyRef": {"name": keys.name, "key": API_KEYS_KEY}}
    return [*plain, {"name": contract.API_KEY_VARIABLE, "valueFrom": source}]


def build_resources(inputs: PodInputs) -> dict[str, Any]:
    cpu = format_cpu(parse_cpu_millis(inputs.spec.resources.cpu, field="spec.resources.cpu"))
    return {
        "requests": {"cpu": cpu, "memory": format_memory(inputs.plan.memory_request_bytes)},
        "limits": {"cpu": cpu, "memory": format_memory(inputs.plan.memory_limit_bytes)},
    }


def build_engine_args(inputs: PodInputs) -> list[str]:
    """`octavo-engine serve` as the plan wants it; the user's flags come last."""
    spec, plan = inputs.spec, inputs.plan
    flags = {
        contract.FLAG_MODEL: model_folder(inputs.commit),
        contract.FLAG_SERVED_MODEL_NAME: spec.model.served_name or inputs.service,
        contract.FLAG_REVISION: inputs.commit,
        contract.FLAG_HOST: "0.0.0.0",
        contract.FLAG_PORT: str(spec.routing.port),
        contract.FLAG_MAX_MODEL_LEN: str(plan.max_model_len),
        contract.FLAG_MAX_NUM_SEQS: str(plan.max_num_seqs),
        contract.FLAG_PLANNED_KV_BLOCKS: str(plan.kv_blocks),
        contract.FLAG_BLOCK_SIZE: str(plan.block_size),
        contract.FLAG_KV_CACHE_DTYPE: KV_DTYPE_FLAGS[spec.engine.kv_cache.dtype],
        contract.FLAG_DRAIN_ACCEPT_SECONDS: str(DRAIN_ACCEPT_SECONDS),
        contract.FLAG_SHUTDOWN_TIMEOUT: str(spec.rollout.drain_seconds),
    }
    words = [word for pair in flags.items() for word in pair]
    if not spec.engine.prefix_caching:
        words.append(contract.FLAG_NO_PREFIX_CACHING)
    return ["serve", *words, *spec.engine.args]


def build_startup_probe(weights_bytes: int) -> dict[str, Any]:
    """Time to load grows with the weights; liveness and readiness wait until the first token was made."""
    budget = STARTUP_BASE_SECONDS + ceil_div(weights_bytes, STARTUP_BYTES_PER_SECOND)
    failures = ceil_div(budget, STARTUP_PERIOD_SECONDS)
    return build_probe(contract.READY_PATH, period=STARTUP_PERIOD_SECONDS, failures=failures)


def build_probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
