"""What the operator reports: `status` of an InferenceService, typed and described field by field."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from octavo_operator.api.spec.base import ApiModel

UNVISITED_GENERATION: Final = -1
"""The CRD's default of `status.observedGeneration`: kstatus calls an object without any status Current."""

MAX_NOTES: Final = 16
MAX_NOTE_LENGTH: Final = 512
MAX_FAILURE_LENGTH: Final = 4096
MAX_MESSAGE_LENGTH: Final = 1024
MAX_CONDITION_LENGTH: Final = 8192
"""What we write; metav1.Condition allows four times as much, but a status holds ten of them."""

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(ApiModel):
    """One aspect of the state, after metav1.Condition."""

    type: str = Field(max_length=316, description="Which aspect.")
    status: ConditionStatus = Field(description="Whether it holds.")
    observed_generation: int = Field(description="metadata.generation that this was judged for.")
    last_transition_time: str = Field(
        description="When `status` last changed.", json_schema_extra={"format": "date-time"}
    )
    reason: str = Field(max_length=1024, description="Why, as one CamelCase word.")
    message: str = Field(max_length=32768, description="Why, in words and numbers.")


class ModelStatus(ApiModel):
    """Which weights the words of spec.model stand for."""

    requested_revision: str = Field(max_length=200, description="The words: spec.model.revision.")
    resolved_revision: str = Field(
        max_length=71, description="The commit (hf://) or digest (pvc://, oci://) that the words stand for."
    )
    short_revision: str = Field(max_length=12, description="Its first 12 hexadecimal digits.")
    upstream_revision: str = Field(
        default="", max_length=71, description="What the words would stand for if they were resolved now."
    )
    resolved_at: str = Field(
        description="When the words were resolved.", json_schema_extra={"format": "date-time"}
    )
    manifest_digest: str = Field(
        default="", max_length=71, description="Digest over path, size and digest of every file."
    )
    size_bytes: int | None = Field(default=None, description="Bytes of all files together.")


class MemoryPlanStatus(ApiModel):
    """What each replica's memory is used for, computed from the model's architecture."""

    device: str = Field(max_length=100, description="Kind of device that the engine computes on.")
    devices: int = Field(default=1, description="How many of them each replica has.")
    device_memory_bytes: int = Field(description="Memory that the plan divides.")
    weights_bytes: int = Field(description="Weights in the engine's element type.")
    activation_bytes: int = Field(description="Working memory of one step.")
    runtime_bytes: int = Field(description="The process itself, before any model is loaded.")
    kv_bytes_per_token: int = Field(description="KV cache of one token, all layers.")
    kv_blocks: int = Field(description="Blocks in the KV cache.")
    engine_reported_blocks: int | None = Field(
        default=None,
        description="Blocks that a ready engine measured room for, without looking at the plan.",
    )
    kv_tokens: int = Field(description="Tokens that the KV cache holds.")
    full_length_sequences: int = Field(description="Sequences of maxModelLen tokens that fit at once.")
    max_sequences: int = Field(description="Most sequences that run at once.")
    max_model_len: int = Field(description="Longest sequence in tokens.")
    plan_hash: str = Field(default="", max_length=16, description="Hash of the numbers above.")
    notes: tuple[Annotated[str, Field(max_length=MAX_NOTE_LENGTH)], ...] = Field(
        default=(), max_length=MAX_NOTES, description="What was decided on the user's behalf, and why."
    )


LimitedBy = Literal["TPOT", "KVCache", "TTFT", "MaxSequences"]
MAX_RECENT: Final = 5


class RecentDecision(ApiModel):
    """One change of the number of replicas."""

    time: str = Field(description="When it was decided.", json_schema_extra={"format": "date-time"})
    replicas: int = Field(description="The number from then on.")
    reason: str = Field(max_length=100, description="Why, as one CamelCase word.")
    message: str = Field(max_length=MAX_MESSAGE_LENGTH, description="Why, in words and numbers.")


class AutoscalingStatus(ApiModel):
    """How many replicas there should be, and why."""

    desired_replicas: int = Field(description="How many replicas there should be.")
    reason: str = Field(max_length=100, description="Why, as one CamelCase word.")
    message: str = Field(max_length=MAX_MESSAGE_LENGTH, description="Why, in words and numbers.")
    capacity_milli_rps: int | None = Field(
        default=None,
        alias="capacityMilliRPS",
        description="Requests that a replica may take within the objective, in thousandths of one a second.",
    )
    demand_milli_rps: int | None = Field(
        default=None,
        alias="demandMilliRPS",
        description="Requests that arrive, in thousandths of one a second.",
    )
    limited_by: LimitedBy | None = Field(default=None, description="What a replica's capacity is limited by.")
    cold_start_seconds: int | None = Field(
        default=None, description="From a pod's creation to its readiness, the 90th percentile of those seen."
    )
    recent: tuple[RecentDecision, ...] = Field(
        default=(), max_length=MAX_RECENT, description="The latest changes, newest first."
    )


class LastKnownGood(ApiModel):
    """The revision that traffic returns to."""

    revision: str = Field(max_length=63, description="Its hash.")
    resolved_revision: str = Field(max_length=71, description="Its commit or digest.")
    image_digest: str = Field(
        default="", max_length=300, description="Engine image that its pods were seen to run."
    )
    proven_at: str = Field(description="When it passed its gates.", json_schema_extra={"format": "date-time"})
    evidence: str = Field(default="", max_length=MAX_MESSAGE_LENGTH, description="What it passed, in words.")


class RolloutStatus(ApiModel):
    """How far the revision that spec asks for has come."""

    strategy: str = Field(max_length=32, description="How it takes over: Surge, InPlace or Canary.")
    step: str = Field(max_length=64, description="What is being done, as one CamelCase word.")
    canary_weight_percent: int = Field(description="Share of the traffic that it really gets, in percent.")
    message: str = Field(max_length=MAX_MESSAGE_LENGTH, description="The same in words and numbers.")


class LastFailure(ApiModel):
    """The latest thing that went wrong; kept after it was mended."""

    reason: str = Field(max_length=100, description="What, as one CamelCase word.")
    message: str = Field(max_length=MAX_FAILURE_LENGTH, description="What, in words and numbers.")
    exit_code: int | None = Field(
        default=None, description="The container's exit code, when a container failed."
    )
    time: str = Field(description="When it was first seen.", json_schema_extra={"format": "date-time"})


class Address(ApiModel):
    """Where a service answers within the cluster, in the shape of Knative's Addressable."""

    url: str = Field(max_length=300, description="Its URL.")


class InferenceServiceStatus(ApiModel):
    """What the operator reports."""

    observed_generation: int = Field(
        default=UNVISITED_GENERATION, description="metadata.generation that this status was computed for."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=20,
        description="Ready, Available, Reconciling and Stalled by kstatus' rules; ModelResolved, "
        "RevisionPinned, RevisionDrifted, MemoryPlanned, ImagePinned, RolloutGatePassed, ScalingActive, "
        "SLOFeasible, CapacityLimited and Suspended.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    url: str | None = Field(default=None, max_length=300, description="Where the service answers.")
    address: Address | None = Field(default=None, description="The same, as other controllers read it.")
    replicas: int = Field(default=0, description="Pods of the revision that serves.")
    ready_replicas: int = Field(default=0, description="Those of them that are ready.")
    updated_replicas: int = Field(default=0, description="Pods of the revision that spec asks for.")
    selector: str | None = Field(
        default=None, max_length=300, description="Selects the pods that serve; read by autoscalers."
    )
    model: ModelStatus | None = Field(
        default=None,
        description="Which weights the words stand for; while ModelResolved is not True, what they stood for "
        "before.",
    )
    memory_plan: MemoryPlanStatus | None = Field(
        default=None, description="What each replica's memory is used for."
    )
    current_revision: str | None = Field(default=None, max_length=63, description="Revision that serves.")
    update_revision: str | None = Field(
        default=None, max_length=63, description="Revision that spec asks for."
    )
    last_known_good: LastKnownGood | None = Field(
        default=None, description="The revision that traffic returns to."
    )
    rollout: RolloutStatus | None = Field(
        default=None, description="How far the revision that spec asks for has come."
    )
    autoscaling: AutoscalingStatus | None = Field(
        default=None, description="How many replicas there should be."
    )
    last_failure: LastFailure | None = Field(default=None, description="The latest thing that went wrong.")


def parse_status(raw: dict[str, Any]) -> InferenceServiceStatus:
    """The stored status; one that an older operator wrote otherwise than we read it counts as none."""
    try:
        return InferenceServiceStatus.model_validate(raw)
    except ValueError:
        return InferenceServiceStatus()


def render_status(status: InferenceServiceStatus) -> dict[str, Any]:
    """As the API server stores it."""
    rendered: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return rendered
