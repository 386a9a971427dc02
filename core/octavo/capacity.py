"""How many requests a second one replica can take within an objective, and what stops it there.

The most is the rate at which just the share of requests misses that the objective allows (`octavo.misses`),
for whatever reason. What makes most of them miss there is what binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from octavo.load_curve import LoadCurve, load_curve
from octavo.misses import Misses, first_tokens, misses_at
from octavo.replica_load import Objective, ReplicaLimits, Traffic, tpot_seconds, work_seconds
from octavo.step_model import StepCosts

NUM_RATES: Final = 20
RATE_RATIO: Final = 1.15
"""Between two rates of a curve: together they span a factor of fourteen."""
HIGHEST_SHARE: Final = 0.98
"""Of the rate that takes all of a replica's time; the highest of a curve."""
HALVINGS: Final = 20

LimitedBy = Literal["TPOT", "KVCache", "TTFT", "MaxSequences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica can take; rates are requests per second."""

    rate: float
    """λ_max: the most within the objective; where that is out of reach, the limit of the cache."""
    limited_by: LimitedBy
    tpot_rate: float
    """At which answers that are too slow alone use up what may miss."""
    kv_rate: float
    """At which requests that find no room or place do."""
    ttft_rate: float
    """At which first tokens that are too late do."""
    sequences: float
    """Bmax: the most that run at once."""
    tpot_seconds: float
    """The mean, at the rate."""
    ttft_seconds: float
    """The objective's share of requests is no later behind other prompts, at the rate."""
    infeasible: str
    """Why even a single request misses the objective, with the numbers; empty where it does not."""
    curve: LoadCurve
    """Misses over the rate; where the objective is out of reach, only those by the cache."""


def replica_capacity(
    costs: StepCosts, traffic: Traffic, limits: ReplicaLimits, objective: Objective
) -> Capacity:
    """The most requests a second at which the objective holds, and which part of it binds.

    >>> costs = StepCosts(
    ...     base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
    ... )
    >>> from octavo.token_sizes import token_sizes
    >>> chat = Traffic(
    ...     prompts=token_sizes([(500, 1)]),
    ...     outputs=token_sizes([(200, 1)]),
    ...     output_tokens=200,
    ...     context_tokens=600,
    ...     kv_tokens=600,
    ...     kv_spread=1200,
    ...     step_tokens=512,
    ... )
    >>> small = ReplicaLimits(kv_tokens=12_000, max_sequences=256)
    >>> slo = Objective(ttft_seconds=2, tpot_seconds=0.08, quantile=0.95)
    >>> found = replica_capacity(costs, chat, small, slo)
    >>> found.limited_by, found.sequences  # 0.85 × 12,000 / 600
    ('KVCache', 17.0)
    >>> 1.5 < found.rate < 2.5 < found.tpot_rate  # thirteen sequences in the mean, twenty now and then
    True
    """
    points = _points(costs, traffic, limits, objective)
    infeasible = _infeasible(costs, traffic, objective)
    curves = [
        load_curve(list(zip(points, shares, strict=True)))
        for shares in zip(
            *((one.any, one.slow, one.by_memory, one.late) for one in points.values()), strict=True
        )
    ]
    whole, slow, memory, late = curves
    curve = memory if infeasible else whole
    rate = curve.rate_missing(objective.budget)
    by_memory = limits.memory_share * limits.kv_tokens / max(traffic.kv_tokens, 1.0)
    return Capacity(
        rate=rate,
        limited_by=_limited_by(
            misses_at(costs, traffic, limits, objective, rate), only_memory=bool(infeasible)
        ),
        tpot_rate=slow.rate_missing(objective.budget),
        kv_rate=memory.rate_missing(objective.budget),
        ttft_rate=late.rate_missing(objective.budget),
        sequences=max(1.0, min(limits.max_sequences, by_memory)),
        tpot_seconds=tpot_seconds(costs, traffic, rate),
        ttft_seconds=ttft_seconds(costs, traffic, objective, rate),
        infeasible=infeasible,
        curve=curve,
    )


def _points(
    costs: StepCosts, traffic: Traffic, limits: ReplicaLimits, objective: Objective
) -> dict[float, Misses]:
    highest = HIGHEST_SHARE / work_seconds(costs, traffic)
    rates = [highest * RATE_RATIO ** (index + 1 - NUM_RATES) for index in range(NUM_RATES)]
    return {rate: misses_at(costs, traffic, limits, objective, rate) for rate in rates}


def _limited_by(misses: Misses, *, only_memory: bool) -> LimitedBy:
    causes: list[tuple[float, LimitedBy]] = [
        (misses.blocked, "KVCache"),
        (misses.crowded, "MaxSequences"),
    ]
    if not only_memory:
        causes += [(misses.slow, "TPOT"), (misses.late, "TTFT")]
    return max(causes, key=lambda cause: cause[0])[1]


def ttft_seconds(costs: StepCosts, traffic: Traffic, objective: Objective, rate: float) -> float:
    """Time to the first token that the objective's share of requests does not exceed behind other prompts.

    Infinite where the queue would grow without end.
    """
    first = first_tokens(costs, traffic, rate)
    low, high = 0.0, objective.ttft_seconds
    while first.late_share(high) > objective.budget:
        if high > 1e6 * objective.ttft_seconds:
            return float("inf")
        low, high = high, 4 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if first.late_share(middle) > objective.budget:
            low = middle
        else:
            high = middle
    return high


def _infeasible(costs: StepCosts, traffic: Traffic, objective: Objective) -> str:
    """
    | one request alone        | answer                   |
    | its step is too slow     | TPOT with the numbers    |
    | its prompt takes too long| TTFT with the numbers    |
    | neither                  | empty                    |
    """
    if costs.base_seconds >= objective.tpot_seconds:
        return (
            f"a step takes {1000 * costs.base_seconds:.0f} ms before any work, "
            f"the objective for TPOT is {1000 * objective.tpot_seconds:.0f} ms"
        )
    if first_tokens(costs, traffic, 0.0).late_share(objective.ttft_seconds) > objective.budget:
        alone = ttft_seconds(costs, traffic, objective, 0.0)
        return (
            f"a prompt of {traffic.prompts.quantile(objective.quantile):.0f} tokens takes "
            f"{1000 * alone:.0f} ms on an idle replica, the objective for TTFT is "
            f"{1000 * objective.ttft_seconds:.0f} ms"
        )
    return ""
