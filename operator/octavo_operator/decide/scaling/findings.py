"""What the conditions say of scaling. None of them makes a service less ready."""

from __future__ import annotations

from typing import Final

from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.conditions import Finding
from octavo_operator.decide.scaling.decision import ScalingDecision, ScalingFigures
from octavo_operator.decide.scaling.explain import shown_rate
from octavo_operator.decide.scaling.publishing import BLIND, UNREAD

SCALING_ACTIVE: Final = "ScalingActive"
CAPACITY_LIMITED: Final = "CapacityLimited"
SLO_FEASIBLE: Final = "SLOFeasible"


def judge_scaling(decision: ScalingDecision, policy: Autoscaling | None) -> tuple[Finding, ...]:
    """All three are judged, so that none outlives the mode it was of; before the first round, none is."""
    if decision.reason == UNREAD:
        return ()
    return (
        _judge_active(decision, policy),
        _judge_limited(decision, policy),
        _judge_feasible(decision.figures),
    )


def _judge_active(decision: ScalingDecision, policy: Autoscaling | None) -> Finding:
    """
    | the number is                         | status  | reason            |
    | spec's                                | False   | `Static`          |
    | an autoscaler's, through /scale       | True    | `External`        |
    | the planner's, without readings       | False   | `MetricsMissing`… |
    | the planner's                         | True    | `Planned`         |
    """
    if policy is None:
        return Finding(type=SCALING_ACTIVE, status="False", reason="Static", message=decision.message)
    if policy.mode == "External":
        return Finding(type=SCALING_ACTIVE, status="True", reason="External", message=decision.message)
    if decision.reason in BLIND:
        return Finding(type=SCALING_ACTIVE, status="False", reason=decision.reason, message=decision.message)
    message = "The engines are read and the number follows the objective"
    return Finding(type=SCALING_ACTIVE, status="True", reason="Planned", message=message)


def _judge_limited(decision: ScalingDecision, policy: Autoscaling | None) -> Finding:
    figures = decision.figures
    if decision.at_maximum and policy is not None and figures is not None:
        message = f"{figures.desired} replicas would be needed, maxReplicas is {policy.max_replicas}"
        return Finding(type=CAPACITY_LIMITED, status="True", reason="AtMaximum", message=message)
    if figures is not None and figures.unschedulable:
        message = f"{figures.unschedulable} pods cannot be scheduled"
        return Finding(type=CAPACITY_LIMITED, status="True", reason="Unschedulable", message=message)
    return Finding(type=CAPACITY_LIMITED, status="False", reason="WithinLimits", message="")


def _judge_feasible(figures: ScalingFigures | None) -> Finding:
    if figures is None:
        message = "No replica's capacity is known"
        return Finding(type=SLO_FEASIBLE, status="Unknown", reason="NotMeasured", message=message)
    if figures.capacity.infeasible:
        message = f"{figures.capacity.infeasible}; the size follows the KV cache instead"
        return Finding(type=SLO_FEASIBLE, status="False", reason="ObjectiveOutOfReach", message=message)
    message = f"A replica takes {shown_rate(figures.replica_rate)} req/s within the objective"
    return Finding(type=SLO_FEASIBLE, status="True", reason="WithinObjective", message=message)
