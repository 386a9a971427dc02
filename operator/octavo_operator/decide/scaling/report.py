"""What status says of scaling."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from octavo_operator.api.status import MAX_MESSAGE_LENGTH, AutoscalingStatus, RecentDecision
from octavo_operator.decide.conditions import format_time, storable
from octavo_operator.decide.observed import parse_time
from octavo_operator.decide.scaling.decision import PastDecision, ScalingDecision
from octavo_operator.decide.scaling.publishing import UNREAD

RECOMMENDED: Final = "Recommended"
"""The reason under mode Recommend: the number is nobody's order, and no Event tells of it."""
MOST_MILLI: Final = 10**12


def autoscaling_status(decision: ScalingDecision, before: AutoscalingStatus | None) -> AutoscalingStatus:
    """Before the first round after a start, what was said last stands."""
    if decision.reason == UNREAD and before is not None:
        return before.model_copy(update={"desired_replicas": decision.replicas})
    figures = decision.figures
    said = AutoscalingStatus(
        desired_replicas=decision.replicas if decision.recommended is None else decision.recommended,
        reason=decision.reason if decision.recommended is None else RECOMMENDED,
        message=storable(decision.message, MAX_MESSAGE_LENGTH),
        recent=tuple(_report_past(past) for past in decision.recent),
    )
    if figures is None:
        return said
    return said.model_copy(
        update={
            "capacity_milli_rps": milli(figures.replica_rate),
            "demand_milli_rps": milli(figures.demand_rate),
            "limited_by": figures.capacity.limited_by,
            "cold_start_seconds": round(figures.cold_start_seconds),
        }
    )


def recall_recent(said: AutoscalingStatus | None) -> tuple[PastDecision, ...]:
    """The latest changes as status has them: it is written with each, the memory once a minute."""
    if said is None:
        return ()
    return tuple(
        PastDecision(
            at=parse_time(one.time) or 0.0, replicas=one.replicas, reason=one.reason, message=one.message
        )
        for one in said.recent
    )


def milli(rate: float) -> int:
    """
    >>> milli(2.0649), milli(1e308)
    (2065, 1000000000000)
    """
    return round(min(1000.0 * rate, MOST_MILLI))


def _report_past(past: PastDecision) -> RecentDecision:
    return RecentDecision(
        time=format_time(datetime.fromtimestamp(past.at, UTC)),
        replicas=past.replicas,
        reason=past.reason,
        message=storable(past.message, MAX_MESSAGE_LENGTH),
    )
