"""A memory plan for people (a table with a bar) and for programs (JSON)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.errors import Unsupported
from octavo.kv_sizing import kv_bytes_per_token
from octavo.planning import Infeasible, MemoryPlan, Workload
from octavo.units import format_bytes, format_count
from octavo.weights import params_total, weights_bytes

BAR_WIDTH: Final = 60


def plan_json(
    arch: ModelArchitecture, workload: Workload, plan: MemoryPlan | Infeasible
) -> dict[str, object]:
    return {
        "model_type": arch.model_type,
        "supported": True,
        "confidence": arch.confidence,
        "notes": list(arch.notes),
        "params_total": params_total(arch),
        "weights_bytes": weights_bytes(arch, dtype=workload.dtype),
        "attention_layers": sum(bool(layer.caches) for layer in arch.layers),
        "kv_bytes_per_token": kv_bytes_per_token(arch, kv_dtype=workload.kv_dtype, dtype=workload.dtype),
        "plan": {"fits": isinstance(plan, MemoryPlan), **asdict(plan)},
    }


def unsupported_json(answer: Unsupported) -> dict[str, object]:
    return {"supported": False, **asdict(answer)}


def unsupported_text(answer: Unsupported) -> str:
    known = "".join(f"\n  {line}" for line in answer.known)
    return f"Unsupported: {answer.reason}.\nKnown from the configuration:{known}"


def plan_table(arch: ModelArchitecture, plan: MemoryPlan | Infeasible) -> str:
    head = f"{arch.model_type}, {format_count(params_total(arch))} parameters, confidence {arch.confidence}"
    if isinstance(plan, Infeasible):
        ways = "".join(f"\n  - {way}" for way in plan.ways_out)
        return f"{head}\n{plan.reason}: {plan.message}\nWays out:{ways}"
    parts = (
        ("weights", plan.weights_bytes, "W"),
        ("one step", plan.activation_bytes, "a"),
        ("runtime", plan.runtime_bytes, "r"),
        ("KV cache", plan.kv_budget_bytes, "K"),
        ("headroom", plan.headroom_bytes, "."),
    )
    lines = [f"  {mark}  {name:<10}{format_bytes(size):>12}" for name, size, mark in parts]
    capacity = (
        f"{plan.kv_blocks} blocks of {plan.block_size} tokens ({format_bytes(plan.block_bytes)}) = "
        f"{plan.kv_tokens} tokens = {plan.full_length_sequences} sequences of {plan.max_model_len}"
    )
    notes = [f"note: {note}" for note in plan.notes]
    total = f"{plan.device} × {plan.devices}, {format_bytes(plan.device_memory_bytes)} each"
    return "\n".join([head, total, bar(parts, plan.device_memory_bytes), *lines, capacity, *notes])


def bar(parts: tuple[tuple[str, int, str], ...], total: int) -> str:
    """One character for each sixtieth of the memory."""
    cells = "".join(mark * round(size * BAR_WIDTH / total) for _, size, mark in parts)
    return f"[{cells[:BAR_WIDTH]:<{BAR_WIDTH}}]"
