"""How many replicas the load of now needs, before anything delays, blocks or adds to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from octavo.capacity import Capacity, replica_capacity
from octavo.replica_load import Objective, ReplicaLimits, Traffic
from octavo.step_model import StepCosts
from octavo_operator.decide.scaling.cold_start import cold_start_seconds
from octavo_operator.decide.scaling.demand import LEAST_HEADROOM, MOST_HEADROOM
from octavo_operator.decide.scaling.forecast import expected_rate
from octavo_operator.decide.scaling.observing import Round, known_costs
from octavo_operator.decide.scaling.state import PlannerState
from octavo_operator.decide.scaling.traffic import TrafficMemory, describe_traffic
from octavo_operator.decide.scaling.view import ServiceView

BUDGET_SHARE: Final = 0.7
"""Of the misses that the objective allows, what the model may spend; the rest is for what it does not know.
Chosen in the simulator on seeds that no result is reported on."""
MOST_SPENT: Final = 1.15
"""Times the budget: traffic that is heavier than usual misses no more, whatever is usual."""
WORTH_BUCKETS: Final = 12
"""An hour."""
MOST_REPLICAS: Final = 10**6
"""Whatever is reported, no more than this is computed with."""
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """What one replica can take, and what that was computed from."""

    limits: ReplicaLimits
    costs: StepCosts
    traffic: Traffic
    capacity: Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the load needs, and what it was computed from."""

    rate: float
    """Requests a second of the last minute."""
    expected: float
    """f: requests a second to expect when a replica that is ordered now has started."""
    work: float
    """f in replicas: over what a replica is loaded to."""
    headroom: float
    """m"""
    occupied: float
    """Replicas that the cache in use and the waiting prompts fill."""
    low: int
    """If the pods that could not be read are idle."""
    high: int
    """If they are loaded to the target."""
    model: ReplicaModel
    replica_rate: float
    """What a replica is loaded to, in requests a second."""


def size_up(seen: Round, *, view: ServiceView, state: PlannerState, objective: Objective) -> Need | None:
    """None before any engine has answered."""
    model = _model(state.traffic, view=view, state=state, objective=objective)
    if model is None:
        return None
    curve, loads = model.capacity.curve, state.demand.growths
    worth = _worth_now(model.capacity, loads, objective, state.worth)
    replica_rate = curve.rate_worth(worth)
    headroom = replica_rate / curve.rate_worth_among(worth, loads)
    headroom = min(max(headroom, LEAST_HEADROOM), MOST_HEADROOM)
    rate = seen.rate or 0.0
    expected = _expected(seen, rate, state)
    work = expected / replica_rate
    occupied = _occupied(seen, model.traffic, model.limits)
    needed = max(work * headroom, occupied)
    return Need(
        rate=rate,
        expected=expected,
        work=work,
        headroom=headroom,
        occupied=occupied,
        low=_whole(needed),
        high=_whole(needed + seen.unknown),
        model=model,
        replica_rate=replica_rate,
    )


def _model(
    memory: TrafficMemory, *, view: ServiceView, state: PlannerState, objective: Objective
) -> ReplicaModel | None:
    """Of a replica that serves such traffic; None before any engine has answered."""
    if state.limits is None:
        return None
    limits = replace(state.limits, memory_share=state.memory_share)
    costs = known_costs(state, view).costs
    traffic = describe_traffic(memory, max_model_len=view.max_model_len, step_tokens=state.step_tokens)
    capacity = replica_capacity(costs, traffic, limits, objective)
    return ReplicaModel(limits=limits, costs=costs, traffic=traffic, capacity=capacity)


def _expected(seen: Round, rate: float, state: PlannerState) -> float:
    """Before a whole minute is known, what is known of it."""
    if not seen.is_settled:
        return rate
    horizon = cold_start_seconds(state.cold_starts)
    return expected_rate(state.usual_load, rate=rate, sequences=seen.sequences, horizon=horizon)


def settled_worth(state: PlannerState, *, view: ServiceView, objective: Objective) -> float | None:
    """The mean of what was usual at the end of each bucket, of about an hour.

    One that followed the traffic would buy replicas where they save little, whenever there is little to save.
    """
    usual = _usual_worth(state, view=view, objective=objective)
    if usual is None or state.worth is None or min(usual, state.worth) <= 0:
        return usual
    weight = 1 / min(len(state.demand.buckets), WORTH_BUCKETS)
    return float(state.worth ** (1 - weight) * usual**weight)


def _usual_worth(state: PlannerState, *, view: ServiceView, objective: Objective) -> float | None:
    """What one more replica has to save, if usual traffic may just spend the budget of misses."""
    model = _model(state.usual, view=view, state=state, objective=objective)
    if model is None:
        return None
    return _worth_of(model.capacity, state.demand.growths, BUDGET_SHARE * objective.budget)


def _worth_now(
    capacity: Capacity, loads: tuple[float, ...], objective: Objective, settled: float | None
) -> float:
    """The settled one, as far as the traffic of now may miss; before there is one, that of this traffic."""
    if settled is None:
        return _worth_of(capacity, loads, BUDGET_SHARE * objective.budget)
    return min(settled, _worth_of(capacity, loads, MOST_SPENT * objective.budget))


def _worth_of(capacity: Capacity, loads: tuple[float, ...], missing: float) -> float:
    """Of a replica more, if this share of requests may miss."""
    rate = capacity.curve.rate_within(missing, loads)
    return capacity.curve.mean_worth(rate, loads)


def _occupied(seen: Round, traffic: Traffic, limits: ReplicaLimits) -> float:
    readings = seen.fresh.values()
    used = sum(one.kv_tokens_referenced + one.waiting * traffic.prompts.mean for one in readings)
    by_memory = used / max(limits.memory_share * limits.kv_tokens, 1.0)
    # Sequences that wait because all places are taken need places, however little memory they take.
    waiting = sum(one.waiting for one in readings)
    running = sum(one.running for one in readings)
    by_places = (running + waiting) / max(limits.max_sequences, 1.0) if waiting else 0.0
    return max(by_memory, by_places)


def _whole(replicas: float) -> int:
    """
    >>> _whole(2.0000000001), _whole(2.01), _whole(1e308)
    (2, 3, 1000000)
    """
    return math.ceil(min(replicas, MOST_REPLICAS) - ROUNDING)
