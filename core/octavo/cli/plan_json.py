"""A memory plan for programs. Fields are added, never renamed; sizes are bytes on one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.cli.model_config import ReadConfig
from octavo.errors import Unsupported
from octavo.kv_sizing import (
    attention_layers,
    cross_bytes_per_sequence,
    kv_bytes_per_token,
    kv_layout,
    resolve_dtype,
    resolve_kv_dtype,
    sequence_bytes,
    state_bytes_per_sequence,
)
from octavo.planning import Alternative, Infeasible, MemoryPlan, Workload
from octavo.weights import params_total, weights_bytes

SIZES: Final = (
    "params_total",
    "weights_bytes",
    "attention_layers",
    "kv_bytes_per_token",
    "state_bytes_per_sequence",
)
"""Of an architecture that is known; null of one that is not, so that a program finds every field."""


def unsupported_json(answer: Unsupported, config: ReadConfig) -> dict[str, object]:
    return {
        "source": config.source,
        "commit": config.commit,
        "model_type": answer.model_type,
        "supported": False,
        "confidence": None,
        "reason": answer.reason,
        "known": list(answer.known),
        "notes": [],
        **dict.fromkeys(SIZES),
        "sequence_bytes": {},
        "plan": {
            **_NO_PLAN,
            "reason": "UnsupportedModel",
            "message": answer.reason,
            "max_model_len_that_fits": None,
            "ways_out": [],
        },
    }


_NO_PLAN: Final[Mapping[str, object]] = {
    "fits": False,
    "devices": None,
    "kv_budget_bytes": None,
    "kv_blocks": 0,
    "kv_tokens": 0,
    "full_length_sequences": 0,
}


def plan_json(
    arch: ModelArchitecture,
    workload: Workload,
    plan: MemoryPlan | Infeasible,
    config: ReadConfig,
    *,
    tensor_parallel: int,
    others: tuple[Alternative, ...],
) -> dict[str, object]:
    layout = kv_layout(
        arch,
        kv_dtype=workload.kv_dtype,
        dtype=workload.dtype,
        block_size=workload.block_size,
        tensor_parallel=tensor_parallel,
    )
    return {
        "source": config.source,
        "commit": config.commit,
        "model_type": arch.model_type,
        "supported": True,
        "confidence": arch.confidence,
        "notes": list(arch.notes),
        "params_total": params_total(arch),
        "params_complete": arch.params_known,
        "dtype": resolve_dtype(arch, workload.dtype),
        "kv_cache_dtype": resolve_kv_dtype(arch, workload.kv_dtype, workload.dtype),
        "quantization": arch.quantization.method if arch.quantization else None,
        "tensor_parallel": tensor_parallel,
        "weights_bytes": weights_bytes(arch, dtype=workload.dtype, tensor_parallel=tensor_parallel),
        "num_layers": arch.num_layers,
        "attention_layers": attention_layers(arch),
        **_sizes(arch, workload, tensor_parallel),
        "groups": [asdict(kind) for kind in layout.kinds],
        "block_bytes": layout.block_bytes,
        "sequence_bytes": {
            str(length): asdict(
                sequence_bytes(
                    arch,
                    length,
                    kv_dtype=workload.kv_dtype,
                    dtype=workload.dtype,
                    block_size=workload.block_size,
                    tensor_parallel=tensor_parallel,
                )
            )
            for length in workload.lengths
        },
        "plan": _plan(plan),
        "alternatives": [asdict(other) for other in others],
    }


def _sizes(arch: ModelArchitecture, workload: Workload, tensor_parallel: int) -> dict[str, object]:
    """What a token and a sequence take on one device."""
    kv_dtype, dtype = workload.kv_dtype, workload.dtype
    return {
        "kv_bytes_per_token": kv_bytes_per_token(
            arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel
        ),
        "state_bytes_per_sequence": state_bytes_per_sequence(
            arch, dtype=dtype, tensor_parallel=tensor_parallel
        ),
        "cross_attention_bytes_per_sequence": cross_bytes_per_sequence(
            arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel
        ),
    }


def _plan(plan: MemoryPlan | Infeasible) -> dict[str, object]:
    if isinstance(plan, Infeasible):
        return {**_NO_PLAN, **asdict(plan), "ways_out": list(plan.ways_out)}
    return {"fits": True, **asdict(plan), "reason": None, "ways_out": []}
