"""`spec.autoscaling`: who chooses the number of replicas, by what objective, within which bounds."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from octavo.errors import InvalidSpec
from octavo_operator.api.spec.base import ApiModel, cel

MAX_REPLICAS: Final = 1000


class ServiceLevelObjective(ApiModel):
    """What clients are promised (modes SLO and Recommend)."""

    ttft_milliseconds: int = Field(
        default=2000, ge=1, le=600_000, description="Longest wait for the first token, in milliseconds."
    )
    tpot_milliseconds: int = Field(
        default=80,
        ge=1,
        le=60_000,
        description="Longest mean time between the further tokens of one answer, in milliseconds.",
    )
    objective_percent: int = Field(
        default=95, ge=50, le=99, description="Share of requests for which both must hold, in percent."
    )


class ScaleDown(ApiModel):
    """How replicas are given up (mode SLO)."""

    stabilization_window_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Replicas fall only to the most that was wanted in the last so many seconds, or in one "
        "and a half times what a new one takes to start if that is longer.",
    )
    max_percent: int = Field(
        default=20, ge=1, le=100, description="Most replicas given up in a minute, in percent; at least one."
    )


class Fallback(ApiModel):
    """What holds while the engines cannot be read (mode SLO)."""

    replicas: int = Field(ge=1, le=MAX_REPLICAS, description="Replicas after five minutes without readings.")
    behavior: Literal["CurrentReplicasIfHigher"] = Field(
        default="CurrentReplicasIfHigher",
        description="CurrentReplicasIfHigher, the only one there is: never fewer than there are.",
    )


BOUNDS_CROSS: Final = "spec.autoscaling.minReplicas must be at most spec.autoscaling.maxReplicas"
BOUNDS_RULE: Final = cel("self.minReplicas <= self.maxReplicas", BOUNDS_CROSS)


class Autoscaling(ApiModel):
    """Who chooses the number of replicas, and within which bounds."""

    mode: Literal["SLO", "External", "Recommend"] = Field(
        default="SLO",
        description="SLO: the operator sizes the service by what its engines report; spec.replicas is "
        "ignored. External: a HorizontalPodAutoscaler or KEDA sets spec.replicas through the scale "
        "subresource. Recommend: as SLO, but the number is only published and spec.replicas stands.",
    )
    min_replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS, description="Fewest replicas, in any mode.")
    max_replicas: int = Field(ge=1, le=MAX_REPLICAS, description="Most replicas, in any mode.")
    slo: ServiceLevelObjective = Field(
        default_factory=ServiceLevelObjective,
        description="What clients are promised (modes SLO and Recommend). Editing it restarts nothing.",
    )
    scale_down: ScaleDown = Field(
        default_factory=ScaleDown, description="How replicas are given up (mode SLO)."
    )
    fallback: Fallback | None = Field(
        default=None,
        description="What holds while the engines cannot be read (mode SLO). Absent: the replicas there are.",
    )

    @model_validator(mode="after")
    def _bounds_must_not_cross(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise InvalidSpec(f"{BOUNDS_CROSS}, got {self.min_replicas} and {self.max_replicas}")
        return self
