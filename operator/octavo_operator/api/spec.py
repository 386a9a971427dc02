"""What a user asks for: `spec` of an InferenceService, typed, bounded and described field by field.

The CRD's schema is generated from these classes, so that a field exists in both or in neither. Defaults
are static only: whatever depends on the model or the cluster is an empty value here and decided later.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from octavo.engine_contract import DEFAULT_PORT, RESERVED_FLAGS
from octavo_operator.api.quantities import CPU_PATTERN, MEMORY_PATTERN

RESERVED_ENV: Final = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "HOME")
"""Environment variables that the operator sets itself."""
URI_PATTERN: Final = r"^hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$"
REVISION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
SERVED_NAME_PATTERN: Final = r"^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$"
IMAGE_PATTERN: Final = r"^([a-zA-Z0-9][a-zA-Z0-9._:/@-]*)?$"
ENV_NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"

MAX_REPLICAS: Final = 1000


def cel(rule: str, message: str) -> dict[str, str]:
    """One validation rule in the Common Expression Language, run by the API server."""
    return {"rule": rule, "message": message}


def validated_by(*rules: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}


class ApiModel(BaseModel):
    """Frozen, camelCase on the wire, and deaf to fields of a newer schema."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ModelSource(ApiModel):
    """Which weights to serve. The words are resolved once to a commit; same words, same weights."""

    uri: str = Field(
        pattern=URI_PATTERN,
        max_length=200,
        description="Where the model lies: hf://<organization>/<name> on the model hub.",
    )
    revision: str = Field(
        default="main",
        pattern=REVISION_PATTERN,
        min_length=1,
        max_length=200,
        description="Branch, tag or commit. A branch or tag is resolved once to a commit and stays there; "
        "a commit of 40 hexadecimal digits is the recommended form.",
    )
    refresh_token: str = Field(
        default="",
        max_length=100,
        description="Change it to any other text to resolve the same branch or tag again.",
    )
    served_name: str = Field(
        default="",
        pattern=SERVED_NAME_PATTERN,
        max_length=200,
        description="The model's name in requests and answers. Empty: the resource's own name.",
    )


class KVCache(ApiModel):
    """The shape of the engine's paged KV cache."""

    dtype: Literal["Auto", "Float32", "BFloat16", "Float16"] = Field(
        default="Auto", description="Element type of cached keys and values. Auto: the model's own."
    )
    block_tokens: int = Field(
        default=16, ge=1, le=256, description="Token positions that one block of the cache holds."
    )
    for_sequences: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Full-length sequences to make room for when spec.resources.memory is empty. 0: four.",
    )


class EnvVar(ApiModel):
    """One environment variable of the engine's container."""

    name: str = Field(pattern=ENV_NAME_PATTERN, min_length=1, max_length=128, description="Its name.")
    value: str = Field(default="", max_length=1024, description="Its literal value.")


_FLAGS = ", ".join(f"'{flag}'" for flag in sorted(RESERVED_FLAGS))
_ENV = ", ".join(f"'{name}'" for name in RESERVED_ENV)


class Engine(ApiModel):
    """How the engine runs."""

    image: str = Field(
        default="",
        pattern=IMAGE_PATTERN,
        max_length=300,
        description="Engine image. Empty: the one the operator was installed with; an upgrade of the "
        "operator changes it for new revisions only.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=16,
        le=10_485_760,
        description="Longest sequence in tokens, prompt and answer together. Absent: the model's own limit, "
        "reduced to what fits in memory.",
    )
    max_sequences: int = Field(
        default=0, ge=0, le=4096, description="Most sequences that run at once. 0: from the memory plan."
    )
    kv_cache: KVCache = Field(default_factory=KVCache, description="The shape of the engine's KV cache.")
    args: tuple[Annotated[str, Field(max_length=256)], ...] = Field(
        default=(),
        max_length=32,
        description="Further flags of `octavo-engine serve`. Flags that the operator sets are refused.",
        json_schema_extra=validated_by(
            cel(
                f"self.all(a, !(a.split('=')[0] in [{_FLAGS}]))",
                "spec.engine.args repeats a flag that the operator sets itself; use the field for it: "
                "spec.model, spec.engine or spec.routing",
            )
        ),
    )
    env: tuple[EnvVar, ...] = Field(
        default=(),
        max_length=32,
        description="Further environment variables of the engine, literal values only.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            **validated_by(
                cel(
                    f"self.all(e, !(e.name in [{_ENV}]))",
                    "spec.engine.env sets a variable of the operator's own: " + ", ".join(RESERVED_ENV),
                )
            ),
        },
    )


def _quantity_text(value: object) -> object:
    """The schema also takes a plain number, as `cpu: 2`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Resources(ApiModel):
    """What each replica gets from its node."""

    cpu: Annotated[str, BeforeValidator(_quantity_text)] = Field(
        default="2",
        pattern=CPU_PATTERN,
        max_length=16,
        description="CPU of each replica, request and limit alike; the engine starts as many threads.",
        json_schema_extra={"x-kubernetes-int-or-string": True},
    )
    memory: str = Field(
        default="",
        pattern=MEMORY_PATTERN,
        max_length=16,
        description="Memory limit of each replica, which weights and KV cache are planned into. "
        "Empty: planned from the model.",
    )


class ScaleDown(ApiModel):
    """How replicas are given up (mode SLO)."""

    stabilization_window_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Replicas fall only to the most that was wanted in the last so many seconds.",
    )


class Autoscaling(ApiModel):
    """Who chooses the number of replicas, and within which bounds."""

    mode: Literal["SLO", "External"] = Field(
        default="SLO",
        description="SLO: the operator sizes the service by what its engines report; spec.replicas is "
        "ignored. External: a HorizontalPodAutoscaler or KEDA sets spec.replicas through the scale "
        "subresource.",
    )
    min_replicas: int = Field(
        default=1, ge=1, le=MAX_REPLICAS, description="Fewest replicas, in either mode."
    )
    max_replicas: int = Field(ge=1, le=MAX_REPLICAS, description="Most replicas, in either mode.")
    scale_down: ScaleDown = Field(
        default_factory=ScaleDown, description="How replicas are given up (mode SLO)."
    )


class Rollout(ApiModel):
    """How one revision takes over: it starts beside the old one and gets the traffic when ready."""

    progress_deadline_seconds: int = Field(
        default=1800,
        ge=30,
        le=86400,
        description="A revision that is not ready after so many seconds without progress has failed; "
        "the last good one goes on serving.",
    )
    drain_seconds: int = Field(
        default=120,
        ge=0,
        le=3600,
        description="How long a replica that is to end may go on answering the requests it has.",
    )
    revision_history_limit: int = Field(
        default=10, ge=0, le=100, description="Old revisions to keep besides the one that serves."
    )


class Routing(ApiModel):
    """How clients reach the service."""

    port: int = Field(
        default=DEFAULT_PORT,
        ge=1024,
        le=65535,
        description="Port of the Service and the engine. Immutable.",
        # On the port itself: on the section, the API server would evaluate it for the default, `{}`.
        json_schema_extra=validated_by(
            cel("self == oldSelf", "spec.routing.port is immutable; make a new InferenceService")
        ),
    )


class InferenceServiceSpec(ApiModel):
    """What a user asks for."""

    model: ModelSource = Field(description="Which weights to serve.")
    engine: Engine = Field(default_factory=Engine, description="How the engine runs.")
    resources: Resources = Field(
        default_factory=Resources, description="What each replica gets from its node."
    )
    replicas: int = Field(
        default=1,
        ge=1,
        le=MAX_REPLICAS,
        description="Number of replicas. Ignored under autoscaling mode SLO; under mode External an "
        "autoscaler sets it through the scale subresource, so leave it out of Git.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Who chooses the number of replicas. Absent: spec.replicas stands.",
        json_schema_extra=validated_by(
            cel(
                "self.minReplicas <= self.maxReplicas",
                "spec.autoscaling.minReplicas must be at most spec.autoscaling.maxReplicas",
            )
        ),
    )
    rollout: Rollout = Field(default_factory=Rollout, description="How one revision takes over from another.")
    routing: Routing = Field(default_factory=Routing, description="How clients reach the service.")
