"""What a user asks for: `spec` of an InferenceService, typed, bounded and described field by field.

The CRD's schema is generated from these classes, so that a field exists in both or in neither. Defaults
are static only: whatever depends on the model or the cluster is an empty value here and decided later.
"""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from octavo.errors import InvalidSpec
from octavo_operator.api.spec.base import ApiModel, cel, validated_by
from octavo_operator.api.spec.engine import RESERVED_ENV, Accelerator, Engine, EnvVar, KVCache, Resources
from octavo_operator.api.spec.model import ModelCache, ModelSource, RevisionPolicy, SecretReference
from octavo_operator.api.spec.overlay import OverlayMetadata, PodOverlay
from octavo_operator.api.spec.rollout import (
    CanaryStep,
    ConfigMapReference,
    Gate,
    QualityGate,
    Rollout,
    SloGate,
)
from octavo_operator.api.spec.routing import (
    EndpointPicker,
    HttpRoute,
    InferencePool,
    ParentReference,
    Routing,
)
from octavo_operator.api.spec.scaling import (
    BOUNDS_RULE,
    MAX_REPLICAS,
    Autoscaling,
    Fallback,
    ScaleDown,
    ServiceLevelObjective,
)

__all__ = [
    "MAX_REPLICAS",
    "RESERVED_ENV",
    "Accelerator",
    "ApiModel",
    "Autoscaling",
    "CanaryStep",
    "ConfigMapReference",
    "EndpointPicker",
    "Engine",
    "EnvVar",
    "Fallback",
    "Gate",
    "HttpRoute",
    "InferencePool",
    "InferenceServiceSpec",
    "KVCache",
    "ModelCache",
    "ModelSource",
    "OverlayMetadata",
    "ParentReference",
    "PodOverlay",
    "QualityGate",
    "Resources",
    "RevisionPolicy",
    "Rollout",
    "Routing",
    "ScaleDown",
    "SecretReference",
    "ServiceLevelObjective",
    "SloGate",
    "cel",
    "validated_by",
]


_LOCKED_OUT: Final = (
    "spec.rollout.gate.quality asks the engines, and the operator, which reads no Secret, has no key of "
    "spec.engine.apiKeySecretRef; remove one of the two (the gates load and slo need no key)"
)


class InferenceServiceSpec(ApiModel):
    """What a user asks for."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        json_schema_extra=validated_by(
            cel(
                "!has(self.engine) || !has(self.engine.apiKeySecretRef) || !has(self.rollout) || "
                "!has(self.rollout.gate) || !has(self.rollout.gate.quality)",
                _LOCKED_OUT,
            )
        ),
    )

    model: ModelSource = Field(description="Which weights to serve.")
    engine: Engine = Field(default_factory=Engine, description="How the engine runs.")
    accelerator: Accelerator | None = Field(
        default=None, description="Devices of each replica. Absent: the engine runs on the CPU."
    )
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
        json_schema_extra=validated_by(BOUNDS_RULE),
    )
    rollout: Rollout = Field(default_factory=Rollout, description="How one revision takes over from another.")
    routing: Routing = Field(default_factory=Routing, description="How clients reach the service.")
    suspend: bool = Field(
        default=False,
        description="The operator touches no child while it is true; what serves goes on serving.",
    )
    template: PodOverlay | None = Field(
        default=None,
        description="Laid over the rendered pods. Absent: nothing is.",
    )

    @model_validator(mode="after")
    def _must_let_the_gate_in(self) -> InferenceServiceSpec:
        if self.engine.api_key_secret_ref is not None and self.rollout.gate.quality is not None:
            raise InvalidSpec(_LOCKED_OUT)
        return self
