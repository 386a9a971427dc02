"""How many replicas one service should have: offered work against modelled capacity.

Unknown is never zero: a pod that did not answer counts as idle when that would raise the number and as
loaded to the target when it would lower it, so that it can do neither by itself. The result is absolute, so
pods that are still loading do not make it grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling.brakes import Brakes, read_brakes
from octavo_operator.decide.scaling.cold_start import cold_start_seconds
from octavo_operator.decide.scaling.decision import PastDecision, ScalingDecision, ScalingFigures
from octavo_operator.decide.scaling.demand import remember_demand
from octavo_operator.decide.scaling.explain import explain, explain_blind
from octavo_operator.decide.scaling.fixed import clamp
from octavo_operator.decide.scaling.lowering import Lowering, choose_lower
from octavo_operator.decide.scaling.observing import Round, objective_of, observe
from octavo_operator.decide.scaling.sizing import Need, settled_worth, size_up
from octavo_operator.decide.scaling.state import PlannerState, note_change, note_wanted, resumed
from octavo_operator.decide.scaling.stuck import without_stuck
from octavo_operator.decide.scaling.view import ServiceView

WINDOW_HORIZONS: Final = 1.5
"""Replicas are given up only after so many times what it takes to get one."""
FALLBACK_SECONDS: Final = 300.0
"""Of a blackout, before the fallback holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A number and why, before it is put into words."""

    replicas: int
    reason: str
    remark: str = ""
    """What the numbers do not say, for the end of the sentence."""
    victims: tuple[str, ...] = ()


def decide_replicas(
    *, now: float, policy: Autoscaling, view: ServiceView, state: PlannerState
) -> tuple[ScalingDecision, PlannerState]:
    """Choose the replica count of one service.

    | load                         | what else                           | decision | reason              |
    | no engine has answered yet   | any                                 | keep     | `MetricsMissing`    |
    | above target                 | any                                 | raise    | `LoadAboveTarget`   |
    | any                          | preemptions above the guard         | one more | `PreemptionBrake`   |
    | any                          | objective missed over 5 and 30 min  | one more | `SLOBurn`           |
    | any                          | blackout                            | keep     | `MetricsMissing`    |
    | any                          | blackout for 5 minutes              | fallback | `MetricsFallback`   |
    | below target                 | see `lowering`                      | keep     | what stands against |
    | below target                 | nothing stands against it           | lower    | `LoadBelowTarget`   |
    | at target                    | any                                 | keep     | `LoadOnTarget`      |
    """
    objective, held = objective_of(policy), clamp(view.replicas, policy)
    window = window_seconds(policy, cold_start_seconds(state.cold_starts))
    state = resumed(state, now=now, replicas=view.replicas, window=window)
    view = without_stuck(view, state.live.last)
    seen, state = observe(now=now, policy=policy, view=view, state=state)
    brakes, state = read_brakes(state, view=view, objective=objective, now=now)
    need = size_up(seen, view=view, state=state, objective=objective)
    if need is None:
        return _keep_blind(view, held, state), state
    horizon = cold_start_seconds(state.cold_starts)
    state = _remember(state, seen, need, view=view, policy=policy, now=now, horizon=horizon)
    choice = _choose(seen, need, brakes, policy=policy, view=view, state=state, now=now, held=held)
    return _decide(choice, need, brakes, view=view, policy=policy, state=state, now=now, horizon=horizon)


def _remember(
    state: PlannerState,
    seen: Round,
    need: Need,
    *,
    view: ServiceView,
    policy: Autoscaling,
    now: float,
    horizon: float,
) -> PlannerState:
    """What was wanted, once rates are known for a minute; a blackout makes the window begin anew."""
    if seen.is_blackout:
        return replace(state, known_since=None, wanted=(), loads=())
    if not seen.is_settled:
        return state
    window, before = window_seconds(policy, horizon), state.demand
    loads = note_wanted(state.loads, now=now, replicas=need.work, window=window)
    state = replace(
        state,
        known_since=now if state.known_since is None else state.known_since,
        wanted=note_wanted(state.wanted, now=now, replicas=need.high, window=window),
        loads=loads,
        demand=remember_demand(
            before, now=now, work=need.rate / need.replica_rate, sized=loads[0][1], horizon=horizon
        ),
    )
    if state.demand.buckets[-1].start == (before.buckets[-1].start if before.buckets else None):
        return state
    return replace(state, worth=settled_worth(state, view=view, objective=objective_of(policy)))


def window_seconds(policy: Autoscaling, horizon: float) -> float:
    """
    >>> window_seconds(Autoscaling(max_replicas=2), 60.0), window_seconds(Autoscaling(max_replicas=2), 360.0)
    (300.0, 540.0)
    """
    return max(float(policy.scale_down.stabilization_window_seconds), WINDOW_HORIZONS * horizon)


def _choose(
    seen: Round,
    need: Need,
    brakes: Brakes,
    *,
    policy: Autoscaling,
    view: ServiceView,
    state: PlannerState,
    now: float,
    held: int,
) -> Choice:
    low = clamp(need.low, policy)
    if low > held:
        return Choice(replicas=low, reason="LoadAboveTarget")
    if brakes.adds and held < policy.max_replicas:
        return Choice(replicas=held + 1, reason=brakes.adds, remark=_brake_remark(brakes))
    if seen.is_blackout or seen.is_dark:
        return _choose_blind(seen, policy=policy, held=held)
    if clamp(need.high, policy) >= held:
        return Choice(replicas=held, reason="LoadOnTarget")
    lowering = Lowering(
        held=held,
        wanted=clamp(max([need.high, *(wanted for _, wanted in state.wanted)]), policy),
        window=window_seconds(policy, cold_start_seconds(state.cold_starts)),
        max_percent=policy.scale_down.max_percent,
    )
    replicas, reason, remark, victims = choose_lower(
        lowering, seen, need, brakes, view=view, state=state, objective=objective_of(policy), now=now
    )
    return Choice(replicas=replicas, reason=reason, remark=remark, victims=victims)


def _brake_remark(brakes: Brakes) -> str:
    if brakes.preempting:
        return "one more, because sequences are preempted"
    return f"one more, because the objective is missed {brakes.burn or 0.0:.1f} times as often as it may be"


def _choose_blind(seen: Round, *, policy: Autoscaling, held: int) -> Choice:
    """Never fewer: what cannot be seen may be busy."""
    remark = f"{seen.unknown} of {seen.unknown + len(seen.fresh)} ready pods cannot be read"
    if policy.fallback is None or seen.blind_seconds < FALLBACK_SECONDS:
        return Choice(replicas=held, reason="MetricsMissing", remark=remark)
    fallback = max(held, clamp(policy.fallback.replicas, policy))
    remark = f"{remark} for {seen.blind_seconds:.0f} s, so the fallback of {fallback} holds"
    return Choice(replicas=fallback, reason="MetricsFallback", remark=remark)


def _keep_blind(view: ServiceView, held: int, state: PlannerState) -> ScalingDecision:
    return ScalingDecision(
        replicas=held, reason="MetricsMissing", message=explain_blind(view, held), recent=state.recent
    )


def _decide(
    choice: Choice,
    need: Need,
    brakes: Brakes,
    *,
    view: ServiceView,
    policy: Autoscaling,
    state: PlannerState,
    now: float,
    horizon: float,
) -> tuple[ScalingDecision, PlannerState]:
    figures = ScalingFigures(
        demand_rate=need.rate,
        expected_rate=need.expected,
        replica_rate=need.replica_rate,
        headroom=need.headroom,
        occupied_replicas=need.occupied,
        desired=need.high,
        capacity=need.model.capacity,
        costs=need.model.costs,
        memory_share=need.model.limits.memory_share,
        cold_start_seconds=horizon,
        starting=view.count("starting"),
        unschedulable=view.count("unschedulable"),
        burn=brakes.burn,
    )
    message = explain(choice.replicas, figures, remark=choice.remark, view=view, now=now)
    before = view.replicas if state.decided is None else state.decided
    if choice.replicas != before:
        past = PastDecision(at=now, replicas=choice.replicas, reason=choice.reason, message=message)
        state = note_change(state, past, lowered=choice.replicas < before)
    state = replace(state, decided=choice.replicas)
    if brakes.adds and choice.reason == brakes.adds:
        state = replace(state, braked_at=now)
    decision = ScalingDecision(
        replicas=choice.replicas,
        reason=choice.reason,
        message=message,
        figures=figures,
        victims=choice.victims,
        recent=state.recent,
        at_maximum=need.low > policy.max_replicas,
    )
    return decision, state
