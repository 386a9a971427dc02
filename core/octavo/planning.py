"""Will it fit, and what fits: architecture × memory × workload → a plan, or a no with ways out.

A device's memory holds, in this order: the weights, the peak of one step, what the runtime itself
takes, some headroom, and then as many KV blocks as the rest allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from octavo.accelerators import Accelerator
from octavo.activation import activation_bytes
from octavo.architecture import ModelArchitecture
from octavo.dtypes import resolve_model_dtype
from octavo.errors import InvalidSpec
from octavo.kv_sizing import block_bytes, blocks_per_sequence, kv_bytes_per_token, resolve_kv_dtype
from octavo.units import GIB, MIB, ceil_div, format_bytes, round_up
from octavo.weights import weights_bytes

CPU_RUNTIME_BYTES: Final = 600 * MIB
"""Resident size of an engine process before a model is loaded."""
ACCELERATOR_RUNTIME_BYTES: Final = 1 * GIB
"""Device memory outside the framework's allocator: context, libraries, communication buffers."""
GRAPH_BYTES: Final = 512 * MIB
"""Captured graphs of the decode batch sizes."""
HEADROOM_DIVISOR: Final = 20
LEAST_HEADROOM_BYTES: Final = 64 * MIB
LEAST_CONTEXT: Final = 256
"""A context below this serves nobody; a plan that could offer no more is a no."""
DEFAULT_CONTEXT: Final = 2048
"""For a model that states no longest context."""
MOST_SEQUENCES_CPU: Final = 64
MOST_SEQUENCES_ACCELERATOR: Final = 256


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

    def __post_init__(self) -> None:
        for name in (
            "max_num_batched_tokens",
            "for_sequences",
            "block_size",
            "max_model_len",
            "max_num_seqs",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSpec(f"{name}: must be at least 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Where each byte goes. On a CPU the device is the pod, its memory the pod's limit."""

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
class _Terms:
    """What does not depend on how much memory there is."""

    device: str
    weights: int
    activation: int
    runtime: int
    bytes_per_token: int
    block_bytes: int
    block_size: int
    max_num_seqs: int
    context: int
    notes: tuple[str, ...]

    @property
    def fixed(self) -> int:
        return self.weights + self.activation + self.runtime

    def blocks_for(self, num_tokens: int, num_sequences: int = 1) -> int:
        return num_sequences * blocks_per_sequence(num_tokens, block_size=self.block_size)


def headroom_bytes(memory_bytes: int) -> int:
    """Left free for what no term foresees: fragmentation, buffers, a burst of requests."""
    return max(LEAST_HEADROOM_BYTES, memory_bytes // HEADROOM_DIVISOR)


def plan_cpu(
    arch: ModelArchitecture, workload: Workload, *, memory_limit_bytes: int | None
) -> MemoryPlan | Infeasible:
    """Plan one engine pod on a CPU; without a limit, derive one that holds `for_sequences` sequences."""
    terms = _cpu_terms(arch, workload)
    refusal = _beyond_the_model(arch, workload)
    if refusal is not None:
        return refusal
    limit = memory_limit_bytes or _derived_limit(terms, workload.for_sequences)
    budget = limit - headroom_bytes(limit) - terms.fixed
    fitted = _fit_context(terms, workload, budget, limit)
    if isinstance(fitted, Infeasible):
        return fitted
    return _plan_of(fitted, budget, limit)


def _cpu_terms(arch: ModelArchitecture, workload: Workload) -> _Terms:
    dtype = resolve_model_dtype(arch.dtype, workload.dtype)
    kv_dtype = resolve_kv_dtype(arch, workload.kv_dtype, workload.dtype)
    sequences = workload.max_num_seqs or MOST_SEQUENCES_CPU
    return _Terms(
        device="cpu",
        weights=weights_bytes(arch, dtype=dtype),
        activation=activation_bytes(
            arch,
            dtype=dtype,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_num_seqs=sequences,
        ),
        runtime=CPU_RUNTIME_BYTES,
        bytes_per_token=kv_bytes_per_token(arch, kv_dtype=kv_dtype),
        block_bytes=block_bytes(arch, kv_dtype=kv_dtype, block_size=workload.block_size),
        block_size=workload.block_size,
        max_num_seqs=sequences,
        context=workload.max_model_len or arch.max_position_embeddings or DEFAULT_CONTEXT,
        notes=arch.notes,
    )


def _beyond_the_model(arch: ModelArchitecture, workload: Workload) -> Infeasible | None:
    """A context longer than the model was made for is refused whatever the memory."""
    limit, asked = arch.max_position_embeddings, workload.max_model_len
    if not asked or not limit or asked <= limit:
        return None
    return Infeasible(
        reason="ContextTooLong",
        message=f"max_model_len {asked} is beyond the model's own {limit} positions; ask for those.",
        need_bytes=0,
        have_bytes=0,
        max_model_len_that_fits=limit,
        ways_out=(f"max_model_len {limit}",),
    )


def _derived_limit(terms: _Terms, sequences: int) -> int:
    """The least whole MiB whose rest, after headroom, holds so many full-length sequences."""
    need = terms.fixed + terms.blocks_for(terms.context, sequences) * terms.block_bytes
    generous = ceil_div(need * HEADROOM_DIVISOR, HEADROOM_DIVISOR - 1)
    return round_up(max(generous, need + LEAST_HEADROOM_BYTES), MIB)


def _fit_context(terms: _Terms, workload: Workload, budget: int, have: int) -> _Terms | Infeasible:
    """The terms with a context that fits; an unset one is lowered, one set by hand is refused."""
    blocks = max(0, budget) // terms.block_bytes if terms.block_bytes else terms.blocks_for(terms.context)
    if terms.blocks_for(terms.context) <= blocks:
        return terms
    fits = blocks * terms.block_size
    if fits < min(LEAST_CONTEXT, terms.context):
        return _no_memory(terms, have)
    if workload.max_model_len is not None:
        return _context_too_long(terms, have, fits)
    note = (
        f"max_model_len is lowered from the model's {terms.context} to {fits}: "
        f"the KV cache has {format_bytes(budget)}."
    )
    return replace(terms, context=fits, notes=(*terms.notes, note))


def _no_memory(terms: _Terms, have: int) -> Infeasible:
    need = _derived_limit(replace(terms, context=min(LEAST_CONTEXT, terms.context)), 1)
    return Infeasible(
        reason="InsufficientMemory",
        message=(
            f"{format_bytes(terms.weights)} of weights, {format_bytes(terms.activation)} for one step and "
            f"{format_bytes(terms.runtime)} of runtime need at least {format_bytes(need)} with the smallest "
            f"KV cache; there are {format_bytes(have)}. Give {format_bytes(need)} or more."
        ),
        need_bytes=need,
        have_bytes=have,
        max_model_len_that_fits=None,
        ways_out=(f"memory of at least {need // MIB}Mi",),
    )


def _context_too_long(terms: _Terms, have: int, fits: int) -> Infeasible:
    need = _derived_limit(terms, 1)
    return Infeasible(
        reason="ContextTooLong",
        message=(
            f"One sequence of {terms.context} tokens needs {format_bytes(need)} in all; there are "
            f"{format_bytes(have)}, which hold {fits} tokens. Lower max_model_len or give more memory."
        ),
        need_bytes=need,
        have_bytes=have,
        max_model_len_that_fits=fits,
        ways_out=(f"max_model_len {fits}", f"memory of at least {need // MIB}Mi"),
    )


def _plan_of(terms: _Terms, budget: int, limit: int) -> MemoryPlan:
    blocks = budget // terms.block_bytes
    return MemoryPlan(
        device=terms.device,
        devices=1,
        device_memory_bytes=limit,
        memory_request_bytes=limit,
        memory_limit_bytes=limit,
        weights_bytes=terms.weights,
        activation_bytes=terms.activation,
        runtime_bytes=terms.runtime,
        headroom_bytes=headroom_bytes(limit),
        kv_budget_bytes=budget,
        block_size=terms.block_size,
        block_bytes=terms.block_bytes,
        kv_bytes_per_token=terms.bytes_per_token,
        kv_blocks=blocks,
        kv_tokens=blocks * terms.block_size,
        full_length_sequences=blocks // terms.blocks_for(terms.context),
        max_num_seqs=min(terms.max_num_seqs, blocks),
        max_model_len=terms.context,
        notes=terms.notes,
    )


def plan_accelerator(
    arch: ModelArchitecture,
    workload: Workload,
    *,
    accelerator: Accelerator,
    devices: int | None,
    memory_percent: int = 90,
) -> MemoryPlan | Infeasible:
    """Plan one replica on accelerators; without a count, the smallest that fits."""
    counts = (devices,) if devices else (1, 2, 4, 8)
    answer = _plan_devices(arch, workload, accelerator, counts[0], memory_percent)
    for count in counts[1:]:
        if isinstance(answer, MemoryPlan):
            break
        answer = _plan_devices(arch, workload, accelerator, count, memory_percent)
    return answer


def _plan_devices(
    arch: ModelArchitecture, workload: Workload, accelerator: Accelerator, devices: int, percent: int
) -> MemoryPlan | Infeasible:
    refusal = _beyond_the_model(arch, workload)
    if refusal is not None:
        return refusal
    terms = _accelerator_terms(arch, workload, accelerator, devices)
    usable = accelerator.memory_bytes * percent // 100
    budget = usable - terms.fixed
    fitted = _fit_context(terms, workload, budget, usable)
    if isinstance(fitted, Infeasible):
        return fitted
    plan = _plan_of(fitted, budget, accelerator.memory_bytes)
    return replace(plan, devices=devices, headroom_bytes=accelerator.memory_bytes - usable)


def _accelerator_terms(
    arch: ModelArchitecture, workload: Workload, accelerator: Accelerator, devices: int
) -> _Terms:
    dtype = resolve_model_dtype(arch.dtype, workload.dtype)
    kv_dtype = resolve_kv_dtype(arch, workload.kv_dtype, workload.dtype)
    sequences = workload.max_num_seqs or MOST_SEQUENCES_ACCELERATOR
    return replace(
        _cpu_terms(arch, workload),
        device=accelerator.name,
        weights=weights_bytes(arch, dtype=dtype, tensor_parallel=devices),
        activation=activation_bytes(
            arch,
            dtype=dtype,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_num_seqs=sequences,
            tensor_parallel=devices,
        ),
        runtime=ACCELERATOR_RUNTIME_BYTES * min(devices, 2) + GRAPH_BYTES,
        bytes_per_token=kv_bytes_per_token(arch, kv_dtype=kv_dtype, tensor_parallel=devices),
        block_bytes=block_bytes(
            arch, kv_dtype=kv_dtype, block_size=workload.block_size, tensor_parallel=devices
        ),
        max_num_seqs=sequences,
    )
