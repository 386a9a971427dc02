"""What an engine runs with, and how it is doing: frozen values for logs, metrics and `/version`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKernels:
    """By which kernels one kind of layer is computed."""

    kind: str
    num_layers: int
    path: str
    reason: str
    """Why by these and not by faster ones; empty where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """How fast this processor is for this model: sustained, so that a CPU quota's pauses are in it."""

    read_bytes_per_second: float
    gemm_flop_per_second: float
    step_seconds: float
    """A step of one token without context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Settled when the engine starts."""

    device: str
    dtype: str
    kv_dtype: str
    kernels: tuple[LayerKernels, ...]
    """For each kind of layer in the model."""
    block_size: int
    block_bytes: int
    num_kv_blocks: int
    kv_blocks_bound: str
    """What kept `num_kv_blocks` from being more, in words."""
    measured_kv_blocks: int
    planned_kv_blocks: int | None
    capacity_tokens: int
    """Longest sequence that the whole pool holds."""
    context_len: int
    """What was asked for, or else the model's own, before looking at the pool."""
    max_model_len: int
    """Prompt and output together; never more than the pool holds."""
    max_num_seqs: int
    max_num_batched_tokens: int
    """The token budget of a step."""
    max_waiting: int
    prefix_caching: bool
    speculative_ngram: int
    kv_bytes_per_token: int
    """Of all layers."""
    weights_bytes: int
    memory_limit_bytes: int
    num_threads: int
    eos_token_ids: frozenset[int]
    vocab_size: int
    """Ids below this exist; padding of the matrix is not counted."""
    revision: str
    max_adapters: int = 0
    adapter_bytes: int = 0
    """Kept free for adapters, all of the highest rank."""
    speed: MeasuredSpeed | None = None
    """None where a table knows the device."""

    @property
    def kernel_path(self) -> str:
        """All paths that layers are computed by; one, unless some kinds fall back."""
        return "+".join(sorted({kernels.path for kernels in self.kernels}))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFacts:
    """One loaded LoRA adapter."""

    name: str
    identity: str
    """Of this load: never used again, also not when the name is."""
    num_bytes: int
    loaded: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Gauges now, and totals since the start."""

    num_running: int
    num_waiting: int
    kv_tokens_per_block: float
    """Less than a block's size where layers form several groups: see `engine_contract.KV_TOKENS`."""
    blocks_total: int
    blocks_referenced: int
    blocks_cached: int
    blocks_free: int
    admitted: int
    preemptions: int
    recomputed_tokens: int
    prompt_tokens: int
    cached_prompt_tokens: int
    generated_tokens: int
    draft_tokens: int
    """Guessed by speculation and computed."""
    accepted_draft_tokens: int
    """Of these, what turned out right and is part of a text."""
    failed_rows: int
    """Sequences ended because no token could be drawn: scores not finite, or a grammar too complex."""
    uncached_prompt_tokens_squared: int
    """Summed over admissions."""
    uncached_prompt_buckets: tuple[int, ...]
    """Admissions per bucket of `engine_contract.UNCACHED_PROMPT_BOUNDS`, and those above the last."""
    output_tokens: int
    """Of sequences that ended by themselves."""
    output_buckets: tuple[int, ...]
    """These sequences per bucket of `engine_contract.OUTPUT_BOUNDS`, and those above the last."""
    steps: int
    step_seconds: float
    step_prefill_tokens: int
    step_context_tokens: float
    step_sequences: int
    """What the steps computed, in sum; see `engine_contract`."""
    running_adapters: tuple[str, ...] = ()
    """Names of the adapters that running sequences use."""
    waiting_adapters: tuple[str, ...] = ()
