"""Will it fit, and what fits: architecture × memory × workload → a plan, or a no with ways out.

A device's memory holds, in this order: the weights, the peak of one step, what the runtime itself
takes, some headroom, and then as many KV blocks as the rest allows. With a pipeline each stage has
its own sum, and the stage with the least room decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from octavo.accelerators import Accelerator
from octavo.activation import SAMPLER_BYTES_CPU, activation_bytes, gathered_attention_bytes
from octavo.architecture import ModelArchitecture
from octavo.errors import InvalidSpec
from octavo.kv_sizing import resolve_dtype, resolve_kv_dtype
from octavo.plan_fitting import DEFAULT_CONTEXT, fit_context, refuse_beyond_the_model, stage_terms
from octavo.plan_terms import Terms, plan_of
from octavo.plan_values import Alternative, Infeasible, MemoryPlan, Workload
from octavo.units import GIB, MIB, ceil_div, round_up

__all__ = [
    "Alternative",
    "Infeasible",
    "MemoryPlan",
    "Workload",
    "alternatives",
    "headroom_bytes",
    "plan_accelerator",
    "plan_cpu",
]

CPU_RUNTIME_BYTES: Final = 372 * MIB
"""What an engine process holds besides the model and the kernel cannot take back: anonymous pages.

Measured on 2026-11-29 with Python 3.11.2, torch 2.15, transformers 5.24 and FastAPI imported: 312 MiB,
12 MiB for a tokenizer of 49,152 entries, and in a pod after the first full step 36 MiB more, of allocators
and threads; 12 MiB to spare. Too little here, and the engine would measure fewer blocks than status
promises. Mapped library files (250 MiB) are not in it.
"""
ACCELERATOR_RUNTIME_BYTES: Final = 3 * GIB // 2
"""Device memory outside the framework's allocator: context and libraries (1.79 GiB on an H100 in a log
of vLLM 0.6.5, 0.35 GiB on an RTX 3090)."""
COLLECTIVE_BYTES: Final = 1 * GIB
"""Buffers of the collective library on each of several devices."""
GRAPH_BYTES: Final = 3 * GIB // 4
"""Captured graphs of the decode batches: 0.72 GiB in a log of vLLM 0.11 on an L40S."""
HEADROOM_DIVISOR: Final = 50
LEAST_HEADROOM_BYTES: Final = 64 * MIB
MOST_SEQUENCES_CPU: Final = 64
MOST_SEQUENCES_ACCELERATOR: Final = 256
DEVICES_PER_NODE: Final = 8
"""Tensor parallelism stays within a node; beyond it, pipeline stages."""
WHOLE_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Device counts in which machines come; others only where tensor parallelism alone cuts evenly."""
ACCELERATOR_HOST_BYTES: Final = 4 * GIB
"""Memory of the pod itself for each device: the process, and one shard on its way to the device."""


def headroom_bytes(memory_bytes: int) -> int:
    """Left free for what no term foresees: allocator slack, buffers of requests, the tokenizer's threads."""
    return max(LEAST_HEADROOM_BYTES, memory_bytes // HEADROOM_DIVISOR)


# A pod on a CPU -----------------------------------------------------------------------------------


def plan_cpu(
    arch: ModelArchitecture, workload: Workload, *, memory_limit_bytes: int | None
) -> MemoryPlan | Infeasible:
    """Plan one engine pod on a CPU; without a limit, derive one that holds `for_sequences` sequences."""
    if memory_limit_bytes is not None and memory_limit_bytes < 1:
        raise InvalidSpec(f"memory: must be at least one byte, got {memory_limit_bytes}; write it as 4Gi")
    refusal = refuse_beyond_the_model(arch, workload)
    if refusal is not None:
        return refusal
    terms = _cpu_terms(arch, workload)
    limit = memory_limit_bytes or _derived_limit(terms, workload.for_sequences)
    budget = limit - headroom_bytes(limit) - terms.fixed_bytes
    fitted = fit_context(terms, workload, budget, limit, need=lambda t: _derived_limit(t, 1))
    if isinstance(fitted, Infeasible):
        return replace(
            fitted, ways_out=(*fitted.ways_out, f"memory of at least {fitted.need_bytes // MIB}Mi")
        )
    return plan_of(fitted, budget, memory=limit, headroom=headroom_bytes(limit))


def _cpu_terms(arch: ModelArchitecture, workload: Workload) -> Terms:
    dtype = resolve_dtype(arch, workload.dtype)
    kv_dtype = resolve_kv_dtype(arch, workload.kv_dtype, workload.dtype)
    sequences = workload.max_num_seqs or MOST_SEQUENCES_CPU
    terms = stage_terms(arch, workload, device="cpu", max_num_seqs=sequences)
    step = activation_bytes(
        arch,
        dtype=dtype,
        max_num_batched_tokens=workload.max_num_batched_tokens,
        max_num_seqs=sequences,
        sampler_bytes=SAMPLER_BYTES_CPU,
    )
    attention = gathered_attention_bytes(
        arch,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=terms.context,
        max_num_batched_tokens=workload.max_num_batched_tokens,
    )
    return replace(terms, activation=step + attention, runtime=CPU_RUNTIME_BYTES)


def _derived_limit(terms: Terms, sequences: int) -> int:
    """The least whole MiB whose rest, after headroom, holds so many full-length sequences."""
    need = terms.fixed_bytes + terms.bytes_for(terms.context, sequences)
    generous = ceil_div(need * HEADROOM_DIVISOR, HEADROOM_DIVISOR - 1)
    return round_up(max(generous, need + LEAST_HEADROOM_BYTES), MIB)


# Accelerators -------------------------------------------------------------------------------------


def plan_accelerator(
    arch: ModelArchitecture,
    workload: Workload,
    *,
    accelerator: Accelerator,
    devices: int | None,
    memory_percent: int = 90,
    tensor_parallel: int | None = None,
) -> MemoryPlan | Infeasible:
    """Plan one replica on accelerators; without a count, the smallest that fits."""
    if not 1 <= memory_percent <= 100:
        raise InvalidSpec(f"memory_percent: must lie between 1 and 100, got {memory_percent}")
    refusal = refuse_beyond_the_model(arch, workload)
    if refusal is not None:
        return refusal
    attempt = _Attempt(arch, accelerator, memory_percent, tensor_parallel)
    answer = attempt.on(devices, workload) if devices is not None else _fewest(attempt, workload)
    if isinstance(answer, MemoryPlan):
        return answer
    ways = _ways_out(attempt, devices or attempt.counts()[-1], workload)
    return replace(answer, ways_out=(*answer.ways_out, *ways))


def _fewest(attempt: _Attempt, workload: Workload) -> MemoryPlan | Infeasible:
    """The plan on the fewest devices that hold one sequence of the whole context, or on the fewest at all."""
    lowered: MemoryPlan | None = None
    answer: MemoryPlan | Infeasible | None = None
    for count in attempt.counts():
        answer = _tried(attempt, count, workload) or answer
        if isinstance(answer, MemoryPlan):
            if answer.max_model_len >= attempt.wanted_context(workload):
                return answer
            lowered = lowered or answer
    assert answer is not None, "one device can always be tried"
    return lowered or answer


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Plans of one model on one kind of device, for several counts and workloads."""

    arch: ModelArchitecture
    accelerator: Accelerator
    percent: int
    tensor_parallel: int | None

    def counts(self) -> tuple[int, ...]:
        """Device counts worth trying, fewest first."""
        if self.tensor_parallel is not None:
            return tuple(self.tensor_parallel * stages for stages in (1, 2, 3, 4, 6, 8))
        odd = (n for n in range(3, DEVICES_PER_NODE) if cuts_evenly(self.arch, n))
        return tuple(sorted({*WHOLE_COUNTS, *odd}))

    def wanted_context(self, workload: Workload) -> int:
        return workload.max_model_len or self.arch.max_position_embeddings or DEFAULT_CONTEXT

    def on(self, devices: int, workload: Workload) -> MemoryPlan | Infeasible:
        """The plan of the stage with the least room."""
        parallel = self.tensor_parallel or largest_tensor_parallel(self.arch, devices)
        stages = _stages(self.arch, devices, parallel)
        plans = [self._stage(workload, stage, devices, parallel, len(stages)) for stage in stages]
        return _worst(plans)

    def _stage(
        self, workload: Workload, layers: range, devices: int, parallel: int, stages: int
    ) -> MemoryPlan | Infeasible:
        sequences = workload.max_num_seqs or MOST_SEQUENCES_ACCELERATOR
        terms = stage_terms(
            self.arch,
            workload,
            device=self.accelerator.name,
            max_num_seqs=sequences,
            tensor_parallel=parallel,
            layers=layers,
        )
        step = activation_bytes(
            self.arch,
            dtype=resolve_dtype(self.arch, workload.dtype),
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_num_seqs=sequences,
        )
        runtime = ACCELERATOR_RUNTIME_BYTES + GRAPH_BYTES + (COLLECTIVE_BYTES if devices > 1 else 0)
        terms = replace(terms, activation=step, runtime=runtime, devices=devices, pipeline_parallel=stages)
        memory = self.accelerator.memory_bytes
        usable = memory * self.percent // 100
        budget = usable - terms.fixed_bytes
        fitted = fit_context(
            terms,
            workload,
            budget,
            usable,
            need=lambda t: t.fixed_bytes + t.bytes_for(t.context, 1),
        )
        if isinstance(fitted, Infeasible):
            return fitted
        plan = plan_of(fitted, budget, memory=memory, headroom=memory - usable)
        host = ACCELERATOR_HOST_BYTES * devices
        return replace(plan, memory_request_bytes=host, memory_limit_bytes=host)


def cuts_evenly(arch: ModelArchitecture, parallel: int) -> bool:
    """Whether so many devices can share the heads: all get the same number, or all share one alike."""
    return arch.num_attention_heads % parallel == 0 and all(
        heads % parallel == 0 or parallel % heads == 0 for heads in arch.kv_head_counts
    )


def largest_tensor_parallel(arch: ModelArchitecture, devices: int) -> int:
    """The most devices of a node that cut the heads evenly and divide the count; the rest are stages."""
    sizes = range(min(devices, DEVICES_PER_NODE), 0, -1)
    return next((size for size in sizes if devices % size == 0 and cuts_evenly(arch, size)), 1)


def _stages(arch: ModelArchitecture, devices: int, parallel: int) -> list[range]:
    """Layers of each pipeline stage: as equal as can be, the later middle stages take the rest."""
    if devices < 1 or parallel < 1 or devices % parallel:
        nearest = parallel * max(1, devices // max(1, parallel))
        raise InvalidSpec(f"devices: {devices} is no multiple of tensor_parallel {parallel}; take {nearest}")
    stages = devices // parallel
    if stages > arch.num_layers:
        raise InvalidSpec(
            f"devices: {devices} make {stages} pipeline stages, more than the {arch.num_layers} layers; "
            f"take at most {parallel * arch.num_layers}"
        )
    sizes = [arch.num_layers // stages] * stages
    for extra in range(arch.num_layers % stages):
        sizes[-2 - extra] += 1
    starts = [sum(sizes[:index]) for index in range(stages)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def _worst(plans: list[MemoryPlan | Infeasible]) -> MemoryPlan | Infeasible:
    refusals = [plan for plan in plans if isinstance(plan, Infeasible)]
    if refusals:
        return max(refusals, key=lambda refusal: refusal.need_bytes - refusal.have_bytes)
    feasible = [plan for plan in plans if isinstance(plan, MemoryPlan)]
    longest = min(plan.max_model_len_that_fits for plan in feasible)
    worst = min(feasible, key=lambda plan: (plan.max_model_len, plan.full_length_sequences, plan.kv_tokens))
    return replace(worst, max_model_len_that_fits=longest)


def _ways_out(attempt: _Attempt, tried: int, workload: Workload) -> tuple[str, ...]:
    """More devices, FP8 keys and values: whichever would do."""
    ways = []
    more = (_tried(attempt, count, workload) for count in attempt.counts() if count > tried)
    enough = next((plan for plan in more if isinstance(plan, MemoryPlan)), None)
    if enough is not None:
        lowered = enough.max_model_len < attempt.wanted_context(workload)
        context = f" with max_model_len {enough.max_model_len}" if lowered else ""
        ways.append(f"{enough.devices} × {enough.device}{context}")
    if workload.kv_dtype not in ("fp8", "int8"):
        smaller = _tried(attempt, tried, replace(workload, kv_dtype="fp8"))
        if isinstance(smaller, MemoryPlan):
            ways.append("an FP8 KV cache")
    return tuple(ways)


def _tried(attempt: _Attempt, devices: int, workload: Workload) -> MemoryPlan | Infeasible | None:
    """A trial that cannot be laid out (more stages than layers) counts as none."""
    try:
        return attempt.on(devices, workload)
    except InvalidSpec:
        return None


def alternatives(
    arch: ModelArchitecture, workload: Workload, plan: MemoryPlan, *, accelerator: Accelerator, percent: int
) -> tuple[Alternative, ...]:
    """What FP8 keys and values, or twice the devices, would give instead of this plan."""
    attempt = _Attempt(arch, accelerator, percent, None)
    trials = {f"{2 * plan.devices} × {accelerator.name}": _tried(attempt, 2 * plan.devices, workload)}
    if workload.kv_dtype not in ("fp8", "int8"):
        same = _Attempt(arch, accelerator, percent, plan.tensor_parallel)
        trials["FP8 KV cache"] = _tried(same, plan.devices, replace(workload, kv_dtype="fp8"))
    return tuple(
        Alternative(
            change=change,
            kv_tokens=trial.kv_tokens,
            full_length_sequences=trial.full_length_sequences,
            max_model_len_that_fits=trial.max_model_len_that_fits,
        )
        for change, trial in trials.items()
        if isinstance(trial, MemoryPlan)
    )
