"""When replicas may be given up, how many at once, and which.

Too many replicas cost money for some minutes; too few cost the objective for as long as a new one takes to
start. So everything that can stand against it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.replica_load import Objective
from octavo_operator.decide.scaling.brakes import MOST_BURN, Brakes
from octavo_operator.decide.scaling.observing import Round
from octavo_operator.decide.scaling.removal import choose_victims, find_overload, load_of
from octavo_operator.decide.scaling.sizing import Need
from octavo_operator.decide.scaling.state import PlannerState
from octavo_operator.decide.scaling.view import ServiceView

STEP_SECONDS: Final = 60.0
"""Between two steps down."""

Answer = tuple[int, str, str, tuple[str, ...]]
"""Replicas, reason, remark, victims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """The question: there are so many, fewer may do."""

    held: int
    wanted: int
    """The most that was wanted in the window, now included."""
    window: float
    max_percent: int


def choose_lower(
    asked: Lowering,
    seen: Round,
    need: Need,
    brakes: Brakes,
    *,
    view: ServiceView,
    state: PlannerState,
    objective: Objective,
    now: float,
) -> Answer:
    """The number to fall to, or the number there is and what stands against fewer."""
    reason, remark = _find_block(asked, seen, brakes, view=view, state=state, now=now)
    if reason:
        return asked.held, reason, remark, ()
    least = max(asked.wanted, asked.held - max(1, asked.held * asked.max_percent // 100))
    load = load_of(seen.fresh.values(), rate=_highest_rate(asked, seen, need, state))
    overload = ""
    for replicas in range(least, asked.held):
        overload = find_overload(
            load,
            replicas,
            costs=need.model.costs,
            traffic=need.model.traffic,
            capacity=need.model.capacity,
            replica_rate=need.replica_rate,
            kv_tokens=need.model.limits.memory_share * need.model.limits.kv_tokens,
            objective=objective,
        )
        if not overload:
            # What is not ready is given up first by the ReplicaSet, without being asked.
            going = asked.held - replicas - view.count("starting", "failing", "unschedulable")
            victims = choose_victims(view.pods, going, output_tokens=need.model.traffic.output_tokens)
            return replicas, "LoadBelowTarget", "", victims
    return asked.held, "RemovalTooTight", f"kept, because {asked.held - 1} would carry {overload}", ()


def _highest_rate(asked: Lowering, seen: Round, need: Need, state: PlannerState) -> float:
    """Of the window: what came a few minutes ago may come again before another replica could start."""
    return max(seen.rate or 0.0, state.demand.highest(seconds=asked.window) * need.replica_rate)


def _find_block(
    asked: Lowering, seen: Round, brakes: Brakes, *, view: ServiceView, state: PlannerState, now: float
) -> tuple[str, str]:
    """
    | what stands against it                    | reason              |
    | a rollout                                 | `RolloutInProgress` |
    | rates or the window not known yet         | `ScaleDownDelayed`  |
    | more was wanted within the window         | `ScaleDownDelayed`  |
    | pods that cannot be scheduled             | `Unschedulable`     |
    | preemptions above the guard               | `PreemptionBrake`   |
    | the objective is being missed             | `SLOBurn`           |
    | the last one given up still drains        | `VictimDraining`    |
    | the last step down is less than 60 s ago  | `ScaleDownDelayed`  |
    """
    if view.in_rollout:
        return "RolloutInProgress", "kept until the rollout is over"
    if not seen.is_settled or state.known_since is None or now - state.known_since < asked.window:
        return "ScaleDownDelayed", f"kept until the load is known for {asked.window:.0f} s"
    if asked.wanted >= asked.held:
        return "ScaleDownDelayed", f"kept until less was wanted for {asked.window:.0f} s"
    if view.count("unschedulable"):
        return "Unschedulable", "kept while pods cannot be scheduled"
    if brakes.preempting:
        return "PreemptionBrake", "kept while sequences are preempted"
    if brakes.burn is not None and brakes.burn > MOST_BURN:
        return "SLOBurn", "kept while the objective is missed"
    if view.count("terminating"):
        return "VictimDraining", "kept until the last one given up has ended"
    if state.lowered_at is not None and now - state.lowered_at < STEP_SECONDS:
        return "ScaleDownDelayed", f"one step in {STEP_SECONDS:.0f} s"
    return "", ""
