"""A memory plan for people: where each byte goes, what it holds, what limits, what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.cli.model_config import ReadConfig
from octavo.errors import Unsupported
from octavo.kv_sizing import (
    attention_layers,
    kv_bytes_per_token,
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
        size = format_bytes(sizes.windowed)
        counts = f"{fit.windowed:>9,}  {fit.full:>16,}"
        if fit.length > plan.max_model_len:
            counts = "  longer than max_model_len"
        lines.append(f"  {fit.length:>9,}  {size:>17}  {counts}")
    return "\n".join(lines)


def _others(others: tuple[Alternative, ...]) -> str:
    if not others:
        return ""
    rows = [
        f"  {other.change:<20} {other.kv_tokens:>13,} tokens, {other.full_length_sequences:,} full-length"
        for other in others
    ]
    return "\n".join(["instead:", *rows])
