"""A replica to simulate, from the memory plan of a service and what its steps should cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from octavo.planning import MemoryPlan
from octavo.step_model import StepCosts
from octavo_operator.simulation.engine_law import SimulatedEngine, StepLaw
from octavo_operator.simulation.fleet_state import MOST_SEQUENCES
from octavo_operator.simulation.traffic import Drawn
from octavo_operator.simulation.workloads import Workload

ATTENTION_SHARE: Final = 2.5e-5
"""Cost of one prompt token over one token of its own context, in costs of a prompt token."""
TILE_TOKENS: Final = 16
LEAST_ROOM_TOKENS: Final = 2
"""A prompt and an output of one token each."""


def engine_of_plan(plan: MemoryPlan, prior: StepCosts, *, name: str, step_tokens: int) -> SimulatedEngine:
    """Steps cost what the prior says, and what the planner's model leaves out."""
    return SimulatedEngine(
        name=name,
        law=StepLaw(
            fixed_seconds=prior.base_seconds,
            seconds_per_prefill_token=prior.prefill_token_seconds,
            seconds_per_context_token=prior.context_token_seconds,
            seconds_per_sequence=prior.sequence_seconds,
            seconds_per_prefill_context=ATTENTION_SHARE * prior.prefill_token_seconds,
            tile_tokens=TILE_TOKENS,
            block_tokens=plan.block_size,
            num_blocks=plan.kv_blocks,
            max_sequences=min(plan.max_num_seqs, MOST_SEQUENCES),
            max_batched_tokens=step_tokens,
            max_output_tokens=plan.max_model_len,
        ),
        prior=prior,
        max_model_len=plan.max_model_len,
    )


def fitting(workload: Workload, engine: SimulatedEngine) -> tuple[Workload, int]:
    """The requests that the engine would accept, and how many it would refuse for their length."""
    law = engine.law
    longest = min(engine.max_model_len, (law.num_blocks - 1) * law.block_tokens)
    requests = workload.requests
    fits = requests.prompt + requests.output <= max(longest, LEAST_ROOM_TOKENS)
    kept = Drawn(
        arrival=requests.arrival[fits],
        prompt=requests.prompt[fits],
        output=requests.output[fits],
        shared=requests.shared[fits] // law.block_tokens * law.block_tokens,
        reusable=requests.reusable[fits] // law.block_tokens * law.block_tokens,
    )
    return replace(workload, requests=kept), int(np.count_nonzero(~fits))
