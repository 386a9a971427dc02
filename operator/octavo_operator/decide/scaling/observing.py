"""One round: the readings of all pods taken into what is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from octavo.replica_load import MEMORY_SHARE, Objective, ReplicaLimits
from octavo.step_learning import LearnedCosts, learn, start_learning
from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling.cold_start import measure_cold_starts, note_ready
from octavo_operator.decide.scaling.forecast import remember_usual
from octavo_operator.decide.scaling.pressure import measure_pressure, remember_pressure
from octavo_operator.decide.scaling.progress import Progress, progress_between
from octavo_operator.decide.scaling.readings import EngineReading
from octavo_operator.decide.scaling.state import MAX_KINDS, Arrivals, LiveMemory, PlannerState
from octavo_operator.decide.scaling.traffic import USUAL_SECONDS, remember_traffic
from octavo_operator.decide.scaling.view import ServiceView

RATE_SECONDS: Final = 60.0
"""Demand is the mean of so many seconds."""
FROZEN_SECONDS: Final = 120.0
"""After a change of replicas nothing is learned: caches fill and load is shared out anew."""
FRESH_SHARE: Final = 0.7
"""Fewer of the ready pods readable than this is a blind round."""
BLACKOUT_ROUNDS: Final = 3
ROUND_SECONDS: Final = 10.0
"""Taken for a first round, which has none before it."""
LONGEST_ROUND_SECONDS: Final = 300.0
SHARE_RECOVERY: Final = 1.01
"""Of η in a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was seen just now."""

    fresh: dict[str, EngineReading]
    unknown: int
    """Ready pods that could not be read."""
    rate: float | None
    """Requests a second over the last minute; None before any rate is known."""
    sequences: float | None
    """That run or wait; None where a ready pod could not be read, or none is ready."""
    is_settled: bool
    """A whole minute of rates is known."""
    is_dark: bool
    """There are ready pods, and none of them could be read."""
    is_blackout: bool
    """Too few could be read, round after round."""
    blind_seconds: float


def objective_of(policy: Autoscaling) -> Objective:
    return Objective(
        ttft_seconds=policy.slo.ttft_milliseconds / 1000,
        tpot_seconds=policy.slo.tpot_milliseconds / 1000,
        quantile=policy.slo.objective_percent / 100,
    )


def observe(
    *, now: float, policy: Autoscaling, view: ServiceView, state: PlannerState
) -> tuple[Round, PlannerState]:
    """Take in one round of readings."""
    fresh = view.fresh
    done = _progress(fresh, state.live)
    seconds = _round_seconds(state.live, now)
    live = _remember_live(state.live, view, fresh, done, now=now)
    objective = objective_of(policy)
    # What was late for another objective says nothing about this one.
    past = state.live.pressure if state.live.objective == objective else ()
    live = replace(
        live,
        objective=objective,
        pressure=remember_pressure(past, measure_pressure(done.values(), objective, now=now)),
    )
    if state.replicas is not None and state.replicas != view.replicas:
        state = replace(state, changed_at=now)
    state = replace(
        state,
        live=live,
        replicas=view.replicas,
        seen_at=now,
        traffic=remember_traffic(state.traffic, done.values(), fresh.values(), seconds=seconds),
        usual=remember_traffic(
            state.usual, done.values(), fresh.values(), seconds=seconds, keep_seconds=USUAL_SECONDS
        ),
        learned=_learn_all(state, view, done.values(), now=now),
        limits=_limits(fresh.values()) or state.limits,
        step_tokens=min((one.max_step_tokens for one in fresh.values()), default=state.step_tokens),
        cold_starts=_cold_starts(state, view),
        memory_share=min(MEMORY_SHARE, state.memory_share * SHARE_RECOVERY ** (seconds / 60)),
    )
    seen = _describe(view, live, fresh, now=now)
    return seen, _remember_usual(state, seen, seconds=seconds)


def _progress(fresh: dict[str, EngineReading], live: LiveMemory) -> dict[str, Progress]:
    pairs = (
        (name, progress_between(live.last[name], one)) for name, one in fresh.items() if name in live.last
    )
    return {name: progress for name, progress in pairs if progress is not None}


def _round_seconds(live: LiveMemory, now: float) -> float:
    if live.round_at is None:
        return ROUND_SECONDS
    return min(max(now - live.round_at, 0.0), LONGEST_ROUND_SECONDS)


def _remember_live(
    live: LiveMemory,
    view: ServiceView,
    fresh: dict[str, EngineReading],
    done: dict[str, Progress],
    *,
    now: float,
) -> LiveMemory:
    ready = view.count("ready")
    blind = ready > 0 and len(fresh) < FRESH_SHARE * ready
    names = {pod.name for pod in view.pods}
    kept = {name: reading for name, reading in live.last.items() if name in names}
    arrivals = (*(one for one in live.arrivals if one.at > now - RATE_SECONDS), *_arrived(done, now=now))
    return replace(
        live,
        last={**kept, **fresh},
        known=note_ready(live.known, view.pods),
        arrivals=arrivals if done or live.counted_since is not None else (),
        counted_since=now if live.counted_since is None and done else live.counted_since,
        round_at=now,
        blind_rounds=live.blind_rounds + 1 if blind else 0,
        blind_since=(now if live.blind_since is None else live.blind_since) if blind else None,
    )


def _arrived(done: Mapping[str, Progress], *, now: float) -> list[Arrivals]:
    """Usually one: all pods tell of the time since the last round, but one that was away of a longer one."""
    counts: dict[int, float] = {}
    for one in done.values():
        span = max(1, round(one.seconds))
        counts[span] = counts.get(span, 0.0) + one.arrived
    return [Arrivals(at=now, seconds=span, count=count) for span, count in counts.items()]


def _rate(arrivals: Iterable[Arrivals], *, now: float) -> float:
    """Over the last minute; of what spans a longer time, its share of that minute."""
    start = now - RATE_SECONDS
    shares = (one.count * min(1.0, (one.at - start) / one.seconds) for one in arrivals if one.at > start)
    return sum(shares) / RATE_SECONDS


def _describe(view: ServiceView, live: LiveMemory, fresh: dict[str, EngineReading], *, now: float) -> Round:
    counted = live.counted_since
    return Round(
        fresh=fresh,
        unknown=view.count("ready") - len(fresh),
        # Over a whole minute from the start: what is not known yet counts as no request.
        rate=None if counted is None else _rate(live.arrivals, now=now),
        sequences=_sequences(view, fresh),
        is_settled=counted is not None and now - counted >= RATE_SECONDS - ROUND_SECONDS,
        is_dark=not fresh and view.count("ready") > 0,
        is_blackout=live.blind_rounds >= BLACKOUT_ROUNDS,
        blind_seconds=now - live.blind_since if live.blind_since is not None else 0.0,
    )


def _sequences(view: ServiceView, fresh: dict[str, EngineReading]) -> float | None:
    if not fresh or len(fresh) < view.count("ready"):
        return None
    return sum(one.sequences for one in fresh.values())


def _remember_usual(state: PlannerState, seen: Round, *, seconds: float) -> PlannerState:
    """Only what is known whole."""
    if seen.rate is None or seen.sequences is None or not seen.is_settled:
        return state
    usual = remember_usual(state.usual_load, seconds=seconds, rate=seen.rate, sequences=seen.sequences)
    return replace(state, usual_load=usual)


def _cold_starts(state: PlannerState, view: ServiceView) -> tuple[float, ...]:
    """In the first round after a start, pods are new only to us, unless none was ever measured."""
    if state.live.round_at is None and state.cold_starts:
        return state.cold_starts
    return measure_cold_starts(state.cold_starts, state.live.known, view.pods)


def _limits(readings: Iterable[EngineReading]) -> ReplicaLimits | None:
    """Of an average replica, but no more sequences than the least one takes."""
    seen = list(readings)
    if not seen:
        return None
    return ReplicaLimits(
        kv_tokens=sum(one.kv_tokens_total for one in seen) / len(seen),
        max_sequences=min(one.max_sequences for one in seen),
    )


def known_costs(state: PlannerState, view: ServiceView) -> LearnedCosts:
    """Of the kind of replica that serves; where nothing was learned yet, the prior as it is known now."""
    known = state.learned.get(view.engine)
    return known if known is not None and known.samples > 0 else start_learning(view.prior)


def _learn_all(
    state: PlannerState, view: ServiceView, done: Iterable[Progress], *, now: float
) -> dict[str, LearnedCosts]:
    known = known_costs(state, view)
    if state.changed_at is None or now - state.changed_at >= FROZEN_SECONDS:
        for progress in done:
            known = learn(known, progress.steps)
    others = {engine: costs for engine, costs in state.learned.items() if engine != view.engine}
    newest = list(others.items())[-(MAX_KINDS - 1) :]
    return {**dict(newest), view.engine: known}
