"""`spec.rollout`: how one revision takes over from another, and what it must pass before."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Literal

from pydantic import Field, field_validator

from octavo.errors import InvalidSpec
from octavo_operator.api.spec.base import ApiModel, cel, shortened, validated_by
from octavo_operator.api.spec.model import OBJECT_NAME_PATTERN

MUST_RISE: Final = "each step must give more than the last"


class CanaryStep(ApiModel):
    """One step of a canary."""

    weight_percent: int = Field(
        ge=1, le=99, description="Share of the traffic that the candidate gets, in percent."
    )
    duration_seconds: int = Field(default=300, ge=1, le=86400, description="How long the step lasts.")


class SloGate(ApiModel):
    """Judged on the canary's share of the traffic, from the engines' own histograms."""

    min_requests: int = Field(
        default=100,
        ge=1,
        le=1_000_000,
        description="With fewer answered requests at the end of a step the gate is inconclusive and passes.",
    )
    max_attainment_drop_percent: int = Field(
        default=2,
        ge=0,
        le=100,
        description="By how much less of its requests than the last known good the candidate may answer "
        "within spec.autoscaling.slo.",
    )


class ConfigMapReference(ApiModel):
    """A ConfigMap in the object's own namespace."""

    name: str = Field(
        pattern=OBJECT_NAME_PATTERN, min_length=1, max_length=253, description="Name of the ConfigMap."
    )


class QualityGate(ApiModel):
    """Probes that the candidate must answer as expected, at temperature 0."""

    config_map_ref: ConfigMapReference = Field(
        description="ConfigMap whose key `probes.json` holds a list of {prompt, maxTokens, expect}; `expect` "
        "is a regular expression, and without it the first 32 tokens are compared with the last known good's."
    )
    min_match_percent: int = Field(
        default=98, ge=1, le=100, description="Share of the probes that must match, in percent."
    )


class Gate(ApiModel):
    """What a candidate must pass before it gets traffic, and while it has a share."""

    load: bool = Field(
        default=True,
        description="The candidate is ready and has loaded exactly the revision's commit and files.",
    )
    slo: SloGate | None = Field(
        default=None, description="Attainment of the canary's share. Absent: not judged."
    )
    quality: QualityGate | None = Field(
        default=None, description="Answers to fixed probes. Absent: not judged."
    )


class Rollout(ApiModel):
    """How one revision takes over from another, and what it must show before."""

    strategy: Literal["Auto", "Surge", "InPlace", "Canary"] = Field(
        default="Auto",
        description="Surge: the candidate starts beside the old replicas. InPlace: replicas are exchanged "
        "one for one. Auto: as Surge, and as InPlace once its pod found no room for 60 seconds. "
        "Canary: as Surge, with the traffic moved in canarySteps.",
    )
    canary_steps: tuple[CanaryStep, ...] = Field(
        default=(),
        max_length=10,
        description="Steps of strategy Canary, the weights rising. Empty: 10 % for five minutes.",
        json_schema_extra=validated_by(
            cel(
                "self.all(a, self.exists_one(b, a.weightPercent == b.weightPercent))",
                f"spec.rollout.canarySteps repeats a weight; {MUST_RISE}",
            )
        ),
    )
    gate: Gate = Field(
        default_factory=Gate,
        description="What a candidate must pass before it gets traffic, and while it has a share.",
    )
    on_failure: Literal["KeepLastKnownGood"] = Field(
        default="KeepLastKnownGood",
        description="KeepLastKnownGood, the only one there is: after a failure the last revision that passed "
        "goes on serving.",
    )
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

    @field_validator("canary_steps")
    @classmethod
    def _must_rise(cls, steps: tuple[CanaryStep, ...]) -> tuple[CanaryStep, ...]:
        """The schema's rule can compare steps, but not their order."""
        weights = [step.weight_percent for step in steps]
        if any(later <= earlier for earlier, later in pairwise(weights)):
            raise InvalidSpec(f"spec.rollout.canarySteps: {MUST_RISE}, got {shortened(weights)}")
        return steps
