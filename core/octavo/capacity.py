"""How many requests a second one replica can take within an objective, and what stops it there.

Terms: *i* uncached prompt tokens and *o* output tokens of a request, *ctx* tokens of context that a
decoding sequence looks back on, *kv* tokens of cache that a running sequence refers to, shared ones once.
The work of one request besides the steps' fixed cost is `W1 = b·i + o·(d + c·ctx)` seconds. At λ requests
a second the rest of the time, `1 − λ·W1`, is left for the fixed cost *a* of steps, so a step takes
`a / (1 − λ·W1)` and `λ·o` times that many sequences run at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from octavo.errors import InvalidSpec
from octavo.prompt_sizes import PromptMoments
from octavo.step_model import StepCosts

MEMORY_SHARE: Final = 0.85
"""η: share of the KV cache to plan with, since sequences grow after they were admitted."""
HALVINGS: Final = 40
"""Of the interval in which the limit by TTFT lies: to a part in 10^12."""

LimitedBy = Literal["TPOT", "KVCache", "TTFT", "MaxSequences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What clients are promised: this share of requests no slower than that."""

    ttft_seconds: float
    tpot_seconds: float
    quantile: float

    def __post_init__(self) -> None:
        if self.ttft_seconds <= 0 or self.tpot_seconds <= 0:
            raise InvalidSpec(
                f"ttft_seconds and tpot_seconds: must be positive, got {self.ttft_seconds} and "
                f"{self.tpot_seconds}"
            )
        if not 0 < self.quantile < 1:
            raise InvalidSpec(f"quantile: must lie between 0 and 1, got {self.quantile}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests, in tokens."""

    prompts: PromptMoments
    """i"""
    output_tokens: float
    """o"""
    context_tokens: float
    """ctx"""
    kv_tokens: float
    """kv"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """What one replica holds, whatever the time."""

    kv_tokens: float
    max_sequences: float
    memory_share: float = MEMORY_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica can take; rates are requests per second."""

    rate: float
    """λ_max: the least of the three limits; where the objective is out of reach, the limit of the cache."""
    limited_by: LimitedBy
    tpot_rate: float
    kv_rate: float
    ttft_rate: float
    sequences: float
    """Bmax: the most that run at once."""
    tpot_seconds: float
    """At the rate."""
    ttft_seconds: float
    """At the rate; infinite where the queue would grow without end."""
    infeasible: str
    """Why even a single request misses the objective, with the numbers; empty where it does not."""


def work_seconds(costs: StepCosts, traffic: Traffic) -> float:
    """W1: what one request adds to the time of the steps it is in.

    >>> costs = StepCosts(
    ...     base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
    ... )
    >>> from octavo.prompt_sizes import prompt_moments
    >>> prompts = prompt_moments([(500, 1)], step_tokens=512, quantile=0.95)
    >>> chat = Traffic(prompts=prompts, output_tokens=200, context_tokens=600, kv_tokens=600)
    >>> round(work_seconds(costs, chat), 3)  # 0.1 of prefill, 200 × (0.1 ms + 0.3 ms) of decode
    0.18
    """
    decode = costs.sequence_seconds + costs.context_token_seconds * traffic.context_tokens
    return costs.prefill_token_seconds * traffic.prompts.tokens + traffic.output_tokens * decode


def tpot_seconds(costs: StepCosts, traffic: Traffic, rate: float) -> float:
    """Duration of a step, and so the time between two tokens; infinite beyond what can be computed."""
    left = 1.0 - rate * work_seconds(costs, traffic)
    return costs.base_seconds / left if left > 0 else math.inf


def occupancy(costs: StepCosts, traffic: Traffic, rate: float) -> float:
    """Sequences that run at once, by Little's law."""
    return rate * traffic.output_tokens * tpot_seconds(costs, traffic, rate) if rate > 0 else 0.0


def ttft_seconds(costs: StepCosts, traffic: Traffic, objective: Objective, rate: float) -> float:
    """Time to the first token that the objective's share of requests does not exceed.

    The wait for the steps of earlier prompts (a queue with one server), the step under way, and the
    steps of the prompt itself.
    """
    tpot = tpot_seconds(costs, traffic, rate)
    if tpot == math.inf:
        return math.inf
    running = occupancy(costs, traffic, rate)
    step = costs.step_seconds(
        prefill_tokens=0, context_tokens=running * traffic.context_tokens, sequences=running
    )
    prompts = traffic.prompts
    own = costs.prefill_token_seconds * prompts.quantile_tokens + prompts.quantile_steps * step
    return _wait_seconds(costs, prompts, step, rate, objective.quantile) + tpot + own


def _wait_seconds(
    costs: StepCosts, prompts: PromptMoments, step: float, rate: float, quantile: float
) -> float:
    """Quantile of the wait behind earlier prompts, each of which takes `S = b·i + n·step`."""
    token = costs.prefill_token_seconds
    mean = token * prompts.tokens + step * prompts.steps
    square = (
        token**2 * prompts.tokens_square
        + 2 * token * step * prompts.tokens_times_steps
        + step**2 * prompts.steps_square
    )
    load = rate * mean
    if load >= 1:
        return math.inf
    if load <= 1 - quantile:
        return 0.0
    return rate * square / (2 * (1 - load)) * math.log(load / (1 - quantile)) / load


def replica_capacity(
    costs: StepCosts, traffic: Traffic, limits: ReplicaLimits, objective: Objective
) -> Capacity:
    """The most requests a second at which the objective holds, and which part of it binds.

    >>> costs = StepCosts(
    ...     base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
    ... )
    >>> from octavo.prompt_sizes import prompt_moments
    >>> prompts = prompt_moments([(500, 1)], step_tokens=512, quantile=0.95)
    >>> chat = Traffic(prompts=prompts, output_tokens=200, context_tokens=600, kv_tokens=600)
    >>> small = ReplicaLimits(kv_tokens=12_000, max_sequences=256)
    >>> slo = Objective(ttft_seconds=2, tpot_seconds=0.08, quantile=0.95)
    >>> found = replica_capacity(costs, chat, small, slo)
    >>> found.limited_by, found.sequences  # 0.85 × 12,000 / 600
    ('KVCache', 17.0)
    >>> round(found.tpot_rate, 2), round(found.kv_rate, 2)  # (1 − 20/80)/0.18, 17/(200 × 0.02 + 17 × 0.18)
    (4.17, 2.41)
    """
    work = work_seconds(costs, traffic)
    by_memory = limits.memory_share * limits.kv_tokens / max(traffic.kv_tokens, 1.0)
    sequences = max(1.0, min(limits.max_sequences, by_memory))
    kv_rate = sequences / (traffic.output_tokens * costs.base_seconds + sequences * work)
    tpot_rate = (1.0 - costs.base_seconds / objective.tpot_seconds) / work
    ttft_rate = _ttft_rate(costs, traffic, objective, most=1.0 / work)
    infeasible = _infeasible(costs, traffic, objective)
    memory: LimitedBy = "MaxSequences" if limits.max_sequences <= by_memory else "KVCache"
    candidates: list[tuple[float, LimitedBy]] = [(kv_rate, memory)]
    if not infeasible:
        candidates += [(tpot_rate, "TPOT"), (ttft_rate, "TTFT")]
    rate, limited_by = min(candidates)
    return Capacity(
        rate=rate,
        limited_by=limited_by,
        tpot_rate=tpot_rate,
        kv_rate=kv_rate,
        ttft_rate=ttft_rate,
        sequences=sequences,
        tpot_seconds=tpot_seconds(costs, traffic, rate),
        ttft_seconds=ttft_seconds(costs, traffic, objective, rate),
        infeasible=infeasible,
    )


def _ttft_rate(costs: StepCosts, traffic: Traffic, objective: Objective, *, most: float) -> float:
    """The largest rate at which the quantile of TTFT is within the objective; 0 where there is none."""
    low, high = 0.0, most
    if ttft_seconds(costs, traffic, objective, low) > objective.ttft_seconds:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if ttft_seconds(costs, traffic, objective, middle) <= objective.ttft_seconds:
            low = middle
        else:
            high = middle
    return low


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
    alone = ttft_seconds(costs, traffic, objective, 0.0)
    if alone >= objective.ttft_seconds:
        return (
            f"a prompt of {traffic.prompts.quantile_tokens:.0f} tokens takes {1000 * alone:.0f} ms on an "
            f"idle replica, the objective for TTFT is {1000 * objective.ttft_seconds:.0f} ms"
        )
    return ""
