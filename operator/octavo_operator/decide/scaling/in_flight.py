"""How many replicas there should be.

Mode SLO in its simplest honest form: the requests that run or wait now, against the sequences that the
engines can run at once. Unknown is never zero: a pod that did not answer counts as idle when that would
raise the number and as fully loaded when it would lower it, so that it can do neither by itself. The
result is absolute, so pods that are still loading do not make it grow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling.decision import ScalingDecision
from octavo_operator.decide.scaling.fixed import clamp
from octavo_operator.decide.scaling.readings import Unknown

TARGET_PERCENT: Final = 80
"""Share of its sequences that a replica is to be loaded to."""
LOAD_CAP: Final = 10**9
"""More requests than this mean the same: the most replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one engine reported in this round."""

    running: float
    waiting: float
    max_sequences: float


Reading = Sample | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    """What the decision is made from."""

    readings: Mapping[str, Reading]
    """By pod, of the revision that serves; pods that are not ready yet are not in it."""
    starting: int
    """Pods of it that are not ready yet."""
    replicas: int
    """How many there are to be now."""
    planned_max_sequences: int
    """What a pod that does not say is taken to run at once."""
    in_rollout: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    """What was wanted lately: (time in seconds, replicas), oldest first."""

    since: float
    """When the memory begins; before a whole window is known, nothing is given up."""
    wanted: tuple[tuple[float, int], ...] = ()


def decide_by_in_flight(
    *, now: float, policy: Autoscaling, view: LoadView, state: ScalingState
) -> tuple[ScalingDecision, ScalingState]:
    """Choose the replica count of one service under mode SLO.

    | load                      | window of scale-down     | decision | reason             |
    | no engine answered        | any                      | keep     | `MetricsMissing`   |
    | above target              | any                      | raise    | `LoadAboveTarget`  |
    | below target              | in a rollout             | keep     | `RolloutInProgress`|
    | below target              | not over, or begun lately| keep     | `ScaleDownDelayed` |
    | below target              | over                     | lower    | `LoadBelowTarget`  |
    | at target                 | any                      | keep     | `LoadOnTarget`     |
    """
    held = clamp(view.replicas, policy)
    samples = [sample for sample in map(valid_sample, view.readings.values()) if sample is not None]
    state = _forget(state, now=now, window=policy.scale_down.stabilization_window_seconds)
    if not samples:
        # The window starts anew: what was low before the blackout says nothing about after it.
        return _keep_blind(view, held), ScalingState(since=now)
    low, high = _wanted_bounds(samples, view)
    low, high = clamp(low, policy), clamp(high, policy)
    state = replace(state, wanted=(*state.wanted, (now, high)))
    decision = _weigh(low, high, held=held, view=view, samples=samples)
    if decision.reason != "LoadBelowTarget":
        return decision, state
    return _delay(decision, held=held, policy=policy, state=state, now=now), state


def valid_sample(reading: Reading) -> Sample | None:
    """None unless every number in it can be true: NaN, infinities and negatives are no answer."""
    if isinstance(reading, Unknown):
        return None
    numbers = (reading.running, reading.waiting, reading.max_sequences)
    return reading if all(math.isfinite(number) and number >= 0 for number in numbers) else None


def unknown_reasons(readings: Mapping[str, Reading]) -> tuple[str, ...]:
    """One line for each pod that could not be used, for people."""
    return tuple(
        f"{pod}: {reading.reason if isinstance(reading, Unknown) else 'reports an impossible number'}"
        for pod, reading in sorted(readings.items())
        if valid_sample(reading) is None
    )


def _wanted_bounds(samples: list[Sample], view: LoadView) -> tuple[int, int]:
    """Replicas needed if the unknown pods are idle, and if they are loaded to the target."""
    planned = max(1, view.planned_max_sequences)
    capacity = min((sample.max_sequences for sample in samples if sample.max_sequences >= 1), default=planned)
    per_replica = capacity * TARGET_PERCENT / 100
    load = min(sum(sample.running + sample.waiting for sample in samples), LOAD_CAP)
    needed = math.ceil(load / per_replica)
    unknown = len(view.readings) - len(samples)
    return needed, needed + unknown


def _weigh(low: int, high: int, *, held: int, view: LoadView, samples: list[Sample]) -> ScalingDecision:
    said = _explain(samples, view)
    if low > held:
        return ScalingDecision(replicas=low, reason="LoadAboveTarget", message=f"{low} replicas: {said}")
    if high >= held:
        return ScalingDecision(replicas=held, reason="LoadOnTarget", message=f"{held} replicas: {said}")
    if view.in_rollout:
        message = f"{held} replicas until the rollout is over, {high} would do: {said}"
        return ScalingDecision(replicas=held, reason="RolloutInProgress", message=message)
    return ScalingDecision(replicas=high, reason="LoadBelowTarget", message=f"{high} replicas: {said}")


def _explain(samples: list[Sample], view: LoadView) -> str:
    running = min(sum(sample.running for sample in samples), LOAD_CAP)
    waiting = min(sum(sample.waiting for sample in samples), LOAD_CAP)
    unknown = len(view.readings) - len(samples)
    blind = f", {unknown} unknown" if unknown else ""
    starting = f", {view.starting} starting" if view.starting else ""
    return f"{running:.0f} running and {waiting:.0f} waiting on {len(samples)} engines{blind}{starting}"


def _keep_blind(view: LoadView, held: int) -> ScalingDecision:
    reasons = "; ".join(unknown_reasons(view.readings)[:3]) or "no pod is ready"
    message = f"{held} replicas kept, since no engine could be read ({reasons})"
    return ScalingDecision(replicas=held, reason="MetricsMissing", message=message)


def _forget(state: ScalingState, *, now: float, window: int) -> ScalingState:
    return replace(state, wanted=tuple(entry for entry in state.wanted if entry[0] >= now - window))


def _delay(
    decision: ScalingDecision, *, held: int, policy: Autoscaling, state: ScalingState, now: float
) -> ScalingDecision:
    """Fall only to the most that was wanted over a whole window."""
    window = policy.scale_down.stabilization_window_seconds
    most = max(wanted for _, wanted in state.wanted)
    known = now - state.since
    if known < window or most >= held:
        message = f"{held} replicas, {decision.replicas} would do now; down after {window} s of less load"
        return ScalingDecision(replicas=held, reason="ScaleDownDelayed", message=message)
    return replace(decision, replicas=max(most, decision.replicas))
