"""Values for the operator's tests, each with as few words as its test needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from octavo.planning import MemoryPlan
from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.api.status import InferenceServiceStatus
from octavo_operator.decide.intent import HASH_VERSION, build_intent, hash_intent
from octavo_operator.decide.observed import ContainerView, DeploymentView, PodView
from octavo_operator.decide.sizing import summarize_plan
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import StoredRevision, World
from octavo_operator.desired.learned import NOTHING, Learned
from octavo_operator.desired.metadata import Owner
from octavo_operator.desired.pins import Pin
from octavo_operator.desired.pod_template import PodInputs, build_pod_template
from octavo_operator.desired.revision import Revision, revision_data

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OWNER = Owner(namespace="prod", name="chat", uid="3f0c")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
URI = "hf://organization/model"
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}
"""A model's config.json that a small machine can hold."""


def make_spec(**sections: object) -> InferenceServiceSpec:
    return InferenceServiceSpec.model_validate({"model": {"uri": URI}, **sections})


def make_plan(**changes: Any) -> MemoryPlan:
    values: dict[str, Any] = {
        "device": "cpu",
        "devices": 1,
        "device_memory_bytes": 2**30,
        "memory_request_bytes": 2**30,
        "memory_limit_bytes": 2**30,
        "weights_bytes": 270_000_000,
        "activation_bytes": 50_000_000,
        "runtime_bytes": 600_000_000,
        "headroom_bytes": 60_000_000,
        "kv_budget_bytes": 90_000_000,
        "block_size": 16,
        "block_bytes": 368_640,
        "kv_bytes_per_token": 23_040,
        "kv_blocks": 244,
        "kv_tokens": 3904,
        "full_length_sequences": 1,
        "max_num_seqs": 32,
        "max_model_len": 2048,
        "notes": ("lowered",),
    }
    return MemoryPlan(**{**values, **changes})


def make_revision(spec: InferenceServiceSpec | None = None, commit: str = COMMIT) -> Revision:
    spec = spec or make_spec()
    intent = build_intent(spec)
    inputs = PodInputs(
        service=OWNER.name,
        revision=hash_intent(intent),
        spec=spec,
        commit=commit,
        image=spec.engine.image or "example.test/engine:1",
        plan=make_plan(),
        hub_endpoint="http://hub.test",
    )
    return Revision(
        hash=inputs.revision,
        hash_version=HASH_VERSION,
        intent=intent,
        commit=commit,
        image=inputs.image,
        plan=summarize_plan(inputs.plan),
        template=build_pod_template(inputs),
    )


def make_pin(spec: InferenceServiceSpec | None = None, commit: str = COMMIT) -> Pin:
    model = (spec or make_spec()).model
    return Pin(
        uri=model.uri,
        revision=model.revision,
        refresh_token=model.refresh_token,
        commit=commit,
        resolved_at="2026-01-01T00:00:00Z",
    )


def make_target(spec: InferenceServiceSpec | None = None) -> Target:
    return Target(pin=make_pin(spec), revision=make_revision(spec))


def make_stored(
    revision: Revision, *, number: int = 1, proven: bool = True, learned: Learned = NOTHING
) -> StoredRevision:
    learned = replace(learned, proven_at="2026-01-01T00:01:00Z" if proven else "")
    return StoredRevision(
        revision=revision,
        number=number,
        created_at="2026-01-01T00:00:00Z",
        learned=learned,
        data=revision_data(revision),
    )


def make_deployment(revision: str, **changes: Any) -> DeploymentView:
    values: dict[str, Any] = {
        "wanted": 1,
        "existing": 1,
        "settled": True,
        "deadline_exceeded": False,
        "failure": "",
    }
    return DeploymentView(revision=revision, **{**values, **changes})


def make_container(**changes: Any) -> ContainerView:
    values: dict[str, Any] = {
        "name": names.CONTAINER_ENGINE,
        "waiting_reason": "",
        "waiting_message": "",
        "terminated_reason": "",
        "exit_code": None,
        "termination_message": "",
    }
    return ContainerView(**{**values, **changes})


def make_pod(revision: str = "aaa", **changes: Any) -> PodView:
    values: dict[str, Any] = {
        "name": "chat-0",
        "address": "10.0.0.1",
        "ready": False,
        "created_at": 0.0,
        "ready_at": None,
        "deletion_cost": "",
        "terminating": False,
        "phase": "Pending",
        "unschedulable": "",
        "containers": (),
    }
    return PodView(revision=revision, **{**values, **changes})


def make_ready_pods(*revisions: str) -> tuple[PodView, ...]:
    """One pod that answers for each time that a revision is named."""
    return tuple(
        make_pod(one, name=f"chat-{one}-{number}", ready=True, phase="Running")
        for number, one in enumerate(revisions)
    )


def make_world(**changes: Any) -> World:
    values: dict[str, Any] = {
        "owner": OWNER,
        "generation": 1,
        "spec": make_spec(),
        "status": InferenceServiceStatus(),
        "pins": (),
        "revisions": {},
        "deployments": {},
        "pods": (),
        "selected": None,
    }
    return World(**{**values, **changes})
