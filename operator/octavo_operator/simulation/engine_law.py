"""What a simulated replica is: how long its steps take and what its KV cache holds.

A step takes `a + b·p + c·C + d·B + e·Σ(p·C)`: p prompt tokens computed, rounded up to whole tiles of the
matrix units, C context tokens read, B sequences, and the attention of each prompt chunk over its own
context. The planner knows the first four terms only, no tiles, no noise and no stalls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.step_model import (
    ACCELERATOR_OVERHEAD_SECONDS,
    ARITHMETIC_SHARE,
    BANDWIDTH_SHARE,
    DeviceRates,
    StepCosts,
    prior_costs,
    work_of_bytes,
)

NOISE_DRAWS: Final = 1 << 16
"""Steps after which the noise repeats; a power of two."""


class StepLaw(NamedTuple):
    """The numbers that the inner loop reads."""

    fixed_seconds: float
    seconds_per_prefill_token: float
    seconds_per_context_token: float
    seconds_per_sequence: float
    seconds_per_prefill_context: float
    tile_tokens: int
    block_tokens: int
    num_blocks: int
    max_sequences: int
    max_batched_tokens: int
    max_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """How far steps stray from the law."""

    noise: float = 0.10
    """Standard deviation of a step's time, relative."""
    stalls_per_step: float = 1 / 2000
    stall_seconds: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEngine:
    """One replica, and what its planner would be told about it."""

    name: str
    law: StepLaw
    disturbance: Disturbance = Disturbance()
    prior: StepCosts
    """What the operator takes a step to cost before it has seen one."""
    max_model_len: int = 8192


A10_8B: Final = SimulatedEngine(
    name="8B in bfloat16 on one A10 of 24 GB",
    law=StepLaw(
        fixed_seconds=0.028,  # 16.06 GB of weights at 600 GB/s, and launches
        seconds_per_prefill_token=0.00016,  # 16.06 GFLOP at 100 of 125 TFLOP/s
        seconds_per_context_token=2.7e-7,  # 128 KiB at 80 % of 600 GB/s
        seconds_per_sequence=5e-5,
        seconds_per_prefill_context=4e-9,
        tile_tokens=64,
        block_tokens=16,
        num_blocks=2150,  # 22.06 GiB × 0.9 less weights and one step leave 4.2 GiB
        max_sequences=128,
        max_batched_tokens=2048,
        max_output_tokens=2048,
    ),
    prior=prior_costs(
        work_of_bytes(weights_bytes=16_060_522_496, kv_bytes_per_token=131_072),
        DeviceRates(
            bytes_per_second=BANDWIDTH_SHARE * 600e9,
            flops_per_second=ARITHMETIC_SHARE * 125e12,
            overhead_seconds=ACCELERATOR_OVERHEAD_SECONDS,
        ),
    ),
)
"""Sized as Llama-3.1-8B with 22.06 GiB of memory; times are round numbers, not measured on that device."""


def noise_table(disturbance: Disturbance, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factors of a step's time, with mean one, and the seconds that a stall adds (mostly none)."""
    random = np.random.default_rng([seed, 7])
    sigma = disturbance.noise
    factors = np.exp(random.normal(-sigma * sigma / 2, sigma, NOISE_DRAWS))
    stalled = random.random(NOISE_DRAWS) < disturbance.stalls_per_step
    lengths = random.exponential(disturbance.stall_seconds, NOISE_DRAWS)
    return factors, np.where(stalled, lengths, 0.0)
