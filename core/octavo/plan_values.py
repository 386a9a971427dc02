"""The values that planning takes and gives: what is to be served, what fits, and a no with ways out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.dtypes import KV_DTYPE_BYTES, MODEL_DTYPE_BYTES
from octavo.errors import InvalidSpec

MOST_TOKENS = 1 << 31
"""No limit that a person sets is larger; a larger one is a mistake."""


ContextPolicy = Literal["lower-unset", "lower", "refuse"]
"""What becomes of a context that does not fit: lowered if it was not set by hand, lowered in any case, or
refused in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be served; None means: from the model or from the plan."""

    max_model_len: int | None = None
    max_num_batched_tokens: int = 512
    max_num_seqs: int | None = None
    for_sequences: int = 4
    """Full-length sequences to make room for where the memory is derived."""
    kv_dtype: str = "auto"
    dtype: str = "auto"
    block_size: int = 16
    lengths: tuple[int, ...] = ()
    context_policy: ContextPolicy = "lower-unset"

    def __post_init__(self) -> None:
        limits = {
            "max_model_len": self.max_model_len,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
            "for_sequences": self.for_sequences,
            "block_size": self.block_size,
            **{f"lengths[{index}]": length for index, length in enumerate(self.lengths)},
        }
        for name, value in limits.items():
            if value is not None and not 1 <= value <= MOST_TOKENS:
                raise InvalidSpec(f"{name}: must lie between 1 and {MOST_TOKENS}, got {value}")
        if self.dtype != "auto" and self.dtype not in MODEL_DTYPE_BYTES:
            raise InvalidSpec(f"dtype: {self.dtype!r} is none of auto, {', '.join(MODEL_DTYPE_BYTES)}")
        if self.kv_dtype != "auto" and self.kv_dtype not in KV_DTYPE_BYTES:
            raise InvalidSpec(f"kv_dtype: {self.kv_dtype!r} is none of auto, {', '.join(KV_DTYPE_BYTES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencesAt:
    """How many sequences of one length the pool holds at once."""

    length: int
    windowed: int
    full: int
    """As if no window were exploited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Where each byte of a device goes. On a CPU the device is the pod, its memory the pod's limit."""

    device: str
    devices: int
    device_memory_bytes: int
    memory_request_bytes: int
    memory_limit_bytes: int
    weights_bytes: int
    activation_bytes: int
    runtime_bytes: int
    headroom_bytes: int
    kv_budget_bytes: int
    block_size: int
    block_bytes: int
    kv_bytes_per_token: int
    kv_blocks: int
    kv_tokens: int
    full_length_sequences: int
    max_num_seqs: int
    max_model_len: int
    notes: tuple[str, ...]
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_model_len_that_fits: int = 0
    """The longest context that one sequence alone could have, at most the model's own."""
    sequences_at: tuple[SequencesAt, ...] = ()
    """For each of the workload's lengths."""
    limited_by: str = ""
    """What keeps the number of sequences where it is: `memory` or `max_num_seqs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why nothing can be served so, and what would help."""

    reason: str
    message: str
    need_bytes: int
    have_bytes: int
    max_model_len_that_fits: int | None
    ways_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """What one change would give."""

    change: str
    kv_tokens: int
    full_length_sequences: int
    max_model_len_that_fits: int
