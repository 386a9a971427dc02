"""When a decision is worth saying, and what is said where the number is not the operator's to set."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from octavo_operator.api.spec import Autoscaling
from octavo_operator.api.status import AutoscalingStatus
from octavo_operator.decide.scaling.decision import ScalingDecision
from octavo_operator.decide.scaling.fixed import clamp

UNREAD: Final = "MetricsUnread"
BLIND: Final = frozenset({"MetricsMissing", "MetricsFallback"})


def wait_for_readings(held: int, policy: Autoscaling) -> ScalingDecision:
    """Before the first round: a restarted operator changes nothing."""
    replicas = clamp(held, policy)
    message = f"{replicas} kept until the engines have been read"
    return ScalingDecision(replicas=replicas, reason=UNREAD, message=message)


def recommend(decision: ScalingDecision, replicas: int) -> ScalingDecision:
    """Mode Recommend: the number of spec stands, and the planner's is published beside it."""
    return replace(decision, replicas=replicas, recommended=decision.replicas, victims=())


def is_news(before: ScalingDecision | None, after: ScalingDecision) -> bool:
    """Whether it must be acted on or said at once; the rest of its figures can wait for a minute."""
    return before is None or _gist(before) != _gist(after)


def still_holds(said: AutoscalingStatus | None, decision: ScalingDecision) -> bool:
    """Whether the words of the operator before us are better than ours, who have just begun to look."""
    return (
        said is not None
        and said.capacity_milli_rps is not None
        and said.desired_replicas == decision.replicas
        and decision.reason not in BLIND
    )


def _gist(decision: ScalingDecision) -> tuple[object, ...]:
    figures = decision.figures
    return (
        decision.replicas,
        decision.recent,
        decision.at_maximum,
        decision.reason in BLIND,
        bool(figures and figures.capacity.infeasible),
        bool(figures and figures.unschedulable),
    )
