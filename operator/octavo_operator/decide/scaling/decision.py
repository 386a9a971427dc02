"""How many replicas, why, and every number that the answer stands on."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.capacity import Capacity
from octavo.step_model import StepCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFigures:
    """The terms of a decision, for status, metrics and the explanation. Rates are per second."""

    demand_rate: float
    """Requests that arrived, the mean of the last minute."""
    expected_rate: float
    """f: to expect when a replica that is ordered now has started."""
    replica_rate: float
    """u·λ_max: what a replica is loaded to."""
    headroom: float
    """m"""
    occupied_replicas: float
    """Replicas that the KV cache in use and the waiting prompts fill by themselves."""
    desired: int
    """Before anything delays or blocks it."""
    capacity: Capacity
    costs: StepCosts
    """As learned."""
    memory_share: float
    """η, as the brake has left it."""
    cold_start_seconds: float
    starting: int
    unschedulable: int
    burn: float | None
    """How often the objective was missed in five minutes, 1 being as often as it may be; None: too few
    requests to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """One change of the number of replicas."""

    at: float
    replicas: int
    """From then on."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """How many, and why."""

    replicas: int
    reason: str
    message: str
    figures: ScalingFigures | None = None
    """None where nothing was computed: a number that spec gives, or no engine that answers yet."""
    victims: tuple[str, ...] = ()
    """Pods to give up, when the number falls."""
    recommended: int | None = None
    """Under mode Recommend, the planner's number; `replicas` is spec's."""
    at_maximum: bool = False
    """More would be wanted than spec.autoscaling.maxReplicas."""
    recent: tuple[PastDecision, ...] = ()
    """The latest changes, newest first."""
