"""What the engines say about now: preemptions, and the share of requests that missed the objective.

Both tell of a wrong size that is there already, so they are brakes, not what a size is made from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from octavo.replica_load import Objective
from octavo_operator.decide.scaling.progress import Progress, num_within

PREEMPTION_SECONDS: Final = 60.0
MOST_PREEMPTED: Final = 0.005
"""Of admissions."""
MOST_RECOMPUTED: Final = 0.05
"""Of prefilled tokens."""
SHORT_BURN_SECONDS: Final = 300.0
LONG_BURN_SECONDS: Final = 1800.0
BURN_STEP_SECONDS: Final = 30.0
"""Older rounds are kept as one for so many seconds."""
ENOUGH_REQUESTS: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Counts of one round, or of a few that followed each other."""

    at: float
    admitted: float = 0.0
    preempted: float = 0.0
    prefilled: float = 0.0
    recomputed: float = 0.0
    first_tokens: float = 0.0
    late_first_tokens: float = 0.0
    answers: float = 0.0
    slow_answers: float = 0.0


def measure_pressure(done: Iterable[Progress], objective: Objective, *, now: float) -> Pressure:
    """All pods together."""
    rounds = list(done)
    first_tokens = sum(one.ttft.total for one in rounds)
    answers = sum(one.tpot.total for one in rounds)
    return Pressure(
        at=now,
        admitted=sum(one.admitted for one in rounds),
        preempted=sum(one.preemptions for one in rounds),
        prefilled=sum(one.prompt_tokens - one.cached_tokens + one.recomputed_tokens for one in rounds),
        recomputed=sum(one.recomputed_tokens for one in rounds),
        first_tokens=first_tokens,
        late_first_tokens=first_tokens - sum(num_within(one.ttft, objective.ttft_seconds) for one in rounds),
        answers=answers,
        slow_answers=answers - sum(num_within(one.tpot, objective.tpot_seconds) for one in rounds),
    )


def remember_pressure(past: tuple[Pressure, ...], latest: Pressure) -> tuple[Pressure, ...]:
    """Half an hour; beyond the last minute, in steps of half a minute."""
    kept = [one for one in past if latest.at - one.at < LONG_BURN_SECONDS]
    merged: list[Pressure] = []
    for one in kept:
        same_step = bool(merged) and merged[-1].at // BURN_STEP_SECONDS == one.at // BURN_STEP_SECONDS
        if same_step and latest.at - one.at > PREEMPTION_SECONDS:
            merged[-1] = _joined(merged[-1], one)
        else:
            merged.append(one)
    return (*merged, latest)


def _joined(early: Pressure, late: Pressure) -> Pressure:
    return Pressure(
        at=late.at,
        admitted=early.admitted + late.admitted,
        preempted=early.preempted + late.preempted,
        prefilled=early.prefilled + late.prefilled,
        recomputed=early.recomputed + late.recomputed,
        first_tokens=early.first_tokens + late.first_tokens,
        late_first_tokens=early.late_first_tokens + late.late_first_tokens,
        answers=early.answers + late.answers,
        slow_answers=early.slow_answers + late.slow_answers,
    )


def is_preempting(past: Iterable[Pressure], *, now: float) -> bool:
    """Whether more sequences were put back, or tokens computed again, than well-sized replicas do."""
    recent = [one for one in past if now - one.at < PREEMPTION_SECONDS]
    admitted, preempted = sum(one.admitted for one in recent), sum(one.preempted for one in recent)
    prefilled, recomputed = sum(one.prefilled for one in recent), sum(one.recomputed for one in recent)
    return preempted > MOST_PREEMPTED * admitted or recomputed > MOST_RECOMPUTED * prefilled


def burn_rate(past: Iterable[Pressure], objective: Objective, *, now: float, seconds: float) -> float | None:
    """How fast the share of requests that may miss the objective is spent: 1 is just all of it.

    The worse of TTFT and TPOT; None with too few requests to say.
    """
    recent = [one for one in past if now - one.at < seconds]
    rates = [
        missed / total / (1.0 - objective.quantile)
        for missed, total in (
            (sum(one.late_first_tokens for one in recent), sum(one.first_tokens for one in recent)),
            (sum(one.slow_answers for one in recent), sum(one.answers for one in recent)),
        )
        if total >= ENOUGH_REQUESTS
    ]
    return max(rates, default=None)
