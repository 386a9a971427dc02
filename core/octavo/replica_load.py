"""The load of one replica in means: what a request costs, how long steps take, how many sequences run.

Terms: *i* uncached prompt tokens and *o* output tokens of a request, *ctx* tokens of context that a
decoding sequence looks back on, *kv* tokens of cache that a running sequence refers to, shared ones once.
The work of one request besides the steps' fixed cost is `W1 = b·i + o·(d + c·ctx)` seconds. At λ requests
a second the rest of the time, `1 − λ·W1`, is left for the fixed cost *a* of steps, so a step takes
`a / (1 − λ·W1)` and `λ·o` times that many sequences run at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from octavo.errors import InvalidSpec
from octavo.step_model import StepCosts
from octavo.token_sizes import TokenSizes

MEMORY_SHARE: Final = 0.85
"""η: share of the KV cache to plan with, since sequences grow after they were admitted."""


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

    @property
    def budget(self) -> float:
        """Share of requests that may miss it."""
        return 1.0 - self.quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests, in tokens."""

    prompts: TokenSizes
    """i"""
    outputs: TokenSizes
    output_tokens: float
    """o, the mean; of sequences that still run, too"""
    context_tokens: float
    """ctx"""
    kv_tokens: float
    """kv"""
    kv_spread: float
    """Variance of what a replica holds over its mean, in tokens: about twice kv where sequences of all
    sizes come at random, less where they are routed to the emptier replica."""
    step_tokens: float
    """M: the most that one step computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """What one replica holds, whatever the time."""

    kv_tokens: float
    max_sequences: float
    memory_share: float = MEMORY_SHARE


def decode_seconds(costs: StepCosts, traffic: Traffic) -> float:
    """What one sequence adds to a step in which it draws a token."""
    return costs.sequence_seconds + costs.context_token_seconds * traffic.context_tokens


def work_seconds(costs: StepCosts, traffic: Traffic) -> float:
    """W1: what one request adds to the time of the steps it is in.

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
    >>> round(work_seconds(costs, chat), 3)  # 0.1 of prefill, 200 × (0.1 ms + 0.3 ms) of decode
    0.18
    """
    prefill = costs.prefill_token_seconds * traffic.prompts.mean
    return prefill + traffic.output_tokens * decode_seconds(costs, traffic)


def tpot_seconds(costs: StepCosts, traffic: Traffic, rate: float) -> float:
    """Duration of a step, and so the time between two tokens; infinite beyond what can be computed."""
    left = 1.0 - rate * work_seconds(costs, traffic)
    return costs.base_seconds / left if left > 0 else math.inf


def occupancy(costs: StepCosts, traffic: Traffic, rate: float) -> float:
    """Sequences that run at once, by Little's law."""
    return rate * traffic.output_tokens * tpot_seconds(costs, traffic, rate) if rate > 0 else 0.0
