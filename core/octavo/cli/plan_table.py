"""A memory plan for people: where each byte goes, what it holds, what limits, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.cli.model_config import ReadConfig
from octavo.errors import Unsupported
from octavo.kv_sizing import (
    attention_layers,
    kv_bytes_per_token,
    sequence_bytes,
    state_bytes_per_sequence,
)
from octavo.planning import Alternative, Infeasible, MemoryPlan, Workload
from octavo.units import format_bytes, format_count
from octavo.weights import params_total, weights_bytes

BAR_WIDTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One share of a device's memory."""

    name: str
    num_bytes: int
    mark: str
    meaning: str


def unsupported_text(answer: Unsupported) -> str:
    known = "".join(f"\n  {line}" for line in answer.known)
    return f"Unsupported: {answer.reason}.\nKnown from the configuration:{known}"


def plan_table(
    arch: ModelArchitecture,
    workload: Workload,
    plan: MemoryPlan | Infeasible,
    config: ReadConfig,
    others: tuple[Alternative, ...],
) -> str:
    sections = [_model(arch, workload, config)]
    if isinstance(plan, Infeasible):
        sections.append(_refusal(plan))
        notes = arch.notes
    else:
        sections += [_memory(plan), _capacity(arch, workload, plan), _others(others)]
        notes = plan.notes
    sections.append("\n".join(f"note: {note}" for note in notes))
    return "\n\n".join(section for section in sections if section)


def _model(arch: ModelArchitecture, workload: Workload, config: ReadConfig) -> str:
    per_token = kv_bytes_per_token(arch, kv_dtype=workload.kv_dtype, dtype=workload.dtype)
    state = state_bytes_per_sequence(arch, dtype=workload.dtype)
    quantized = f", {arch.quantization.method}" if arch.quantization else ""
    commit = f" = {config.commit[:12]}" if config.commit else ""
    lines = [
        f"{config.source}{commit}",
        f"{arch.model_type}: {format_count(params_total(arch))} parameters{quantized}, "
        f"{format_bytes(weights_bytes(arch, dtype=workload.dtype))} of weights, confidence {arch.confidence}",
        f"{attention_layers(arch)} of {arch.num_layers} layers keep keys and values: "
        f"{format_bytes(per_token)} a token",
    ]
    if state:
        lines.append(f"a constant state besides: {format_bytes(state)} a sequence")
    return "\n".join(lines)


def _refusal(plan: Infeasible) -> str:
    ways = "".join(f"\n  - {way}" for way in plan.ways_out) or "\n  (none is known)"
    return f"Does not fit ({plan.reason}): {plan.message}\nWays out:{ways}"


def _memory(plan: MemoryPlan) -> str:
    """The bar of one device and what its marks stand for."""
    parts = (
        Part(name="weights", num_bytes=plan.weights_bytes, mark="█", meaning="on each device"),
        Part(name="one step", num_bytes=plan.activation_bytes, mark="▓", meaning="activations and logits"),
        Part(name="runtime", num_bytes=plan.runtime_bytes, mark="▒", meaning="process, libraries, graphs"),
        Part(name="KV cache", num_bytes=plan.kv_budget_bytes, mark="░", meaning=_blocks(plan)),
        Part(name="headroom", num_bytes=plan.headroom_bytes, mark="·", meaning="kept free"),
    )
    rows = [
        f"  {part.mark} {part.name:<9}{format_bytes(part.num_bytes):>11}  {part.meaning}" for part in parts
    ]
    return "\n".join([_device(plan), bar(parts, plan.device_memory_bytes), *rows])


def _device(plan: MemoryPlan) -> str:
    if plan.device == "cpu":
        return f"one CPU pod, memory request and limit {format_bytes(plan.memory_limit_bytes)}"
    layout = f"tensor parallel {plan.tensor_parallel}, pipeline parallel {plan.pipeline_parallel}"
    return f"{plan.devices} × {plan.device} ({layout}), {format_bytes(plan.device_memory_bytes)} each"


def _blocks(plan: MemoryPlan) -> str:
    return f"{plan.kv_blocks:,} blocks of {plan.block_size} tokens, {format_bytes(plan.block_bytes)} each"


def bar(parts: Sequence[Part], total: int) -> str:
    """The parts in proportion, cut where their sums fall, so that the whole is always full."""
    cells, so_far = "", 0
    for part in parts:
        so_far += part.num_bytes
        cells += part.mark * (round(so_far * BAR_WIDTH / total) - len(cells))
    return f"│{cells:<{BAR_WIDTH}}│"


def _capacity(arch: ModelArchitecture, workload: Workload, plan: MemoryPlan) -> str:
    """What the pool holds, by length."""
    lines = [
        f"holds {plan.kv_tokens:,} tokens: {plan.full_length_sequences:,} sequences of the full "
        f"{plan.max_model_len:,} (one alone could have {plan.max_model_len_that_fits:,})",
        f"runs at most {plan.max_num_seqs:,} sequences at once; limited by {plan.limited_by}",
        f"  {'length':>9}  {'a sequence takes':>17}  {'fit':>9}  {'without windows':>16}",
    ]
    for fit in plan.sequences_at:
        sizes = sequence_bytes(
            arch,
            fit.length,
            kv_dtype=workload.kv_dtype,
            dtype=workload.dtype,
            block_size=workload.block_size,
            tensor_parallel=plan.tensor_parallel,
        )
        counts = f"{fit.windowed:>9,}  {fit.full:>16,}"
        if fit.length > plan.max_model_len:
            counts = "longer than max_model_len"
        lines.append(f"  {fit.length:>9,}  {format_bytes(sizes.windowed):>17}  {counts}")
    return "\n".join(lines)


def _others(others: Sequence[Alternative]) -> str:
    if not others:
        return ""
    rows = [
        f"  {other.change:<20} {other.kv_tokens:>13,} tokens, {other.full_length_sequences:,} full-length"
        for other in others
    ]
    return "\n".join(["instead:", *rows])
