"""What acts on a size that is wrong already: a little memory less to plan with, one replica more.

A brake adds one replica at a time, and none while one is on its way: the next would only tell of the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from octavo.replica_load import Objective
from octavo_operator.decide.scaling.cold_start import cold_start_seconds
from octavo_operator.decide.scaling.pressure import (
    LONG_BURN_SECONDS,
    SHORT_BURN_SECONDS,
    burn_rate,
    is_preempting,
)
from octavo_operator.decide.scaling.state import PlannerState
from octavo_operator.decide.scaling.view import ServiceView

SHARE_CUT: Final = 0.9
"""Of η, at most once a minute."""
CUT_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 60.0
LEAST_SHARE: Final = 0.3
MOST_BURN: Final = 1.0
"""Faster than this, and the objective is missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """Which of them are on."""

    preempting: bool
    burn: float | None
    """Over five minutes; None with too few requests."""
    burning: bool
    """Faster than the objective allows, over five minutes and over thirty."""
    adds: Literal["", "PreemptionBrake", "SLOBurn"] = ""
    """Why one replica is added now."""


def read_brakes(
    state: PlannerState, *, view: ServiceView, objective: Objective, now: float
) -> tuple[Brakes, PlannerState]:
    """What the last minutes say, and the state after it was acted upon."""
    past = state.live.pressure
    brakes = Brakes(
        preempting=is_preempting(past, now=now),
        burn=burn_rate(past, objective, now=now, seconds=SHORT_BURN_SECONDS),
        burning=all(
            (burn_rate(past, objective, now=now, seconds=seconds) or 0.0) > MOST_BURN
            for seconds in (min(SHORT_BURN_SECONDS, _unchanged_seconds(state, view, now)), LONG_BURN_SECONDS)
        ),
    )
    if brakes.preempting and _is_over(state.relieved_at, CUT_SECONDS, now):
        share = max(LEAST_SHARE, state.memory_share * SHARE_CUT)
        state = replace(state, memory_share=share, relieved_at=now)
    if not (brakes.preempting or brakes.burning) or not _may_add(state, view, now=now):
        return brakes, state
    reason: Literal["PreemptionBrake", "SLOBurn"] = "PreemptionBrake" if brakes.preempting else "SLOBurn"
    return replace(brakes, adds=reason), state


def _unchanged_seconds(state: PlannerState, view: ServiceView, now: float) -> float:
    """Since the replicas are as many as now, and have worked off what waited for them.

    What was missed with fewer says nothing about these.
    """
    moments = [pod.ready_at for pod in view.pods if pod.ready_at is not None]
    return now - max([*moments, state.changed_at or 0.0]) - SETTLE_SECONDS


def _may_add(state: PlannerState, view: ServiceView, *, now: float) -> bool:
    """The last addition has had the time to start and to show."""
    if view.count("starting", "unschedulable") or view.count("ready") < view.replicas:
        return False
    return _is_over(state.braked_at, cold_start_seconds(state.cold_starts) + CUT_SECONDS, now)


def _is_over(since: float | None, seconds: float, now: float) -> bool:
    return since is None or now - since >= seconds
