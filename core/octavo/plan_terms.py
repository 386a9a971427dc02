"""The terms of a memory plan, and the arithmetic between a KV budget and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.kv_groups import KVLayout, blocks_per_sequence, prefill_blocks, without_windows
from octavo.plan_values import MemoryPlan, SequencesAt


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What does not depend on how much memory there is."""

    device: str
    weights: int
    layout: KVLayout
    bytes_per_token: int
    max_num_seqs: int
    chunk: int
    """Tokens of a prompt that one step computes."""
    context: int
    model_context: int
    lengths: tuple[int, ...]
    notes: tuple[str, ...]
    activation: int = 0
    runtime: int = 0
    devices: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def fixed_bytes(self) -> int:
        return self.weights + self.activation + self.runtime

    def blocks_for(self, num_tokens: int, num_sequences: int) -> int:
        """Blocks of so many sequences, one of which is having its prompt computed."""
        each = blocks_per_sequence(self.layout, num_tokens)
        return num_sequences * each + prefill_blocks(self.layout, num_tokens, self.chunk)

    def bytes_for(self, num_tokens: int, num_sequences: int) -> int:
        return self.blocks_for(num_tokens, num_sequences) * self.layout.block_bytes


def blocks_in(terms: Terms, budget: int) -> int:
    """`n` with `n × block_bytes ≤ budget < (n + 1) × block_bytes`; none of a negative budget."""
    return max(0, budget) // terms.layout.block_bytes if terms.layout.block_bytes else 0


def sequences_in(terms: Terms, budget: int, num_tokens: int) -> int:
    """How many sequences of one length fit at once; as many as may run where nothing is cached."""
    if not terms.layout.block_bytes:
        return terms.max_num_seqs if budget >= 0 else 0
    reserve = prefill_blocks(terms.layout, num_tokens, terms.chunk)
    each = blocks_per_sequence(terms.layout, num_tokens)
    return max(0, blocks_in(terms, budget) - reserve) // max(1, each)


def longest_context(terms: Terms, budget: int, most: int) -> int:
    """The longest context of which one sequence fits, by bisection; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if sequences_in(terms, budget, middle) >= 1:
            low = middle
        else:
            high = middle - 1
    return low


def tokens_in(terms: Terms, blocks: int) -> int:
    """Tokens that the blocks hold; with several groups, those of full-length sequences."""
    kinds = terms.layout.kinds
    if len(kinds) == 1 and kinds[0].window is None:
        return blocks * kinds[0].block_tokens
    each = blocks_per_sequence(terms.layout, terms.context)
    return blocks * terms.context // each if each else 0


def sequences_at(terms: Terms, budget: int, length: int) -> SequencesAt:
    """Sequences of one length, with windows exploited and as if there were none."""
    without = replace(terms, layout=without_windows(terms.layout))
    return SequencesAt(
        length=length,
        windowed=sequences_in(terms, budget, length),
        full=sequences_in(without, budget, length),
    )


def plan_of(terms: Terms, budget: int, *, memory: int, headroom: int) -> MemoryPlan:
    """The plan of one device (of the stage that decides)."""
    blocks = blocks_in(terms, budget)
    fitting = sequences_in(terms, budget, terms.context)
    return MemoryPlan(
        device=terms.device,
        devices=terms.devices,
        device_memory_bytes=memory,
        memory_request_bytes=memory,
        memory_limit_bytes=memory,
        weights_bytes=terms.weights,
        activation_bytes=terms.activation,
        runtime_bytes=terms.runtime,
        headroom_bytes=headroom,
        kv_budget_bytes=budget,
        block_size=terms.layout.block_size,
        block_bytes=terms.layout.block_bytes,
        kv_bytes_per_token=terms.bytes_per_token,
        kv_blocks=blocks,
        kv_tokens=tokens_in(terms, blocks),
        full_length_sequences=fitting,
        max_num_seqs=min(terms.max_num_seqs, max(1, blocks)) if terms.layout.kinds else terms.max_num_seqs,
        max_model_len=terms.context,
        notes=terms.notes,
        tensor_parallel=terms.tensor_parallel,
        pipeline_parallel=terms.pipeline_parallel,
        max_model_len_that_fits=longest_context(terms, budget, terms.model_context),
        sequences_at=tuple(sequences_at(terms, budget, length) for length in terms.lengths),
        limited_by="max_num_seqs" if fitting >= terms.max_num_seqs else "memory",
    )
