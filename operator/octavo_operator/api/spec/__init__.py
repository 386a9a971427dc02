"""What a user asks for: `spec` of an InferenceService, typed, bounded and described field by field.

The CRD's schema is generated from these classes, so that a field exists in both or in neither. Defaults
are static only: whatever depends on the model or the cluster is an empty value here and decided later.
"""

from __future__ import annotations

from pydantic import Field

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


class InferenceServiceSpec(ApiModel):
    """What a user asks for."""

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
