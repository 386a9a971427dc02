"""How many replicas the load of now needs, before anything delays, blocks or adds to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from octavo.capacity import Capacity, Objective, ReplicaLimits, Traffic, replica_capacity
from octavo.step_model import StepCosts
from octavo_operator.decide.scaling.observing import Round, known_costs
from octavo_operator.decide.scaling.state import PlannerState
from octavo_operator.decide.scaling.traffic import describe_traffic
from octavo_operator.decide.scaling.view import ServiceView

UTILIZATION: Final = 0.8
"""u: share of its capacity that a replica is loaded to."""
MOST_REPLICAS: Final = 10**6
"""Whatever is reported, no more than this is computed with."""
ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the load needs, and what it was computed from."""

    work: float
    """f in replicas: arrivals over what a replica is loaded to."""
    headroom: float
    occupied: float
    """Replicas that the cache in use and the waiting prompts fill."""
    low: int
    """If the pods that could not be read are idle."""
    high: int
    """If they are loaded to the target."""
    capacity: Capacity
    traffic: Traffic
    costs: StepCosts
    limits: ReplicaLimits

    @property
    def replica_rate(self) -> float:
        return UTILIZATION * self.capacity.rate


def size_up(seen: Round, *, view: ServiceView, state: PlannerState, objective: Objective) -> Need | None:
    """None before any engine has answered."""
    if state.limits is None:
        return None
    limits = replace(state.limits, memory_share=state.memory_share)
    costs = known_costs(state, view).costs
    traffic = describe_traffic(
        state.traffic,
        max_model_len=view.max_model_len,
        step_tokens=state.step_tokens,
        quantile=objective.quantile,
    )
    capacity = replica_capacity(costs, traffic, limits, objective)
    work = (seen.rate or 0.0) / (UTILIZATION * capacity.rate)
    occupied = _occupied(seen, traffic, limits)
    headroom = state.demand.headroom
    needed = max(work * headroom, occupied)
    return Need(
        work=work,
        headroom=headroom,
        occupied=occupied,
        low=_whole(needed),
        high=_whole(needed + seen.unknown),
        capacity=capacity,
        traffic=traffic,
        costs=costs,
        limits=limits,
    )


def _occupied(seen: Round, traffic: Traffic, limits: ReplicaLimits) -> float:
    readings = seen.fresh.values()
    used = sum(one.kv_tokens_referenced + one.waiting * traffic.prompts.tokens for one in readings)
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
