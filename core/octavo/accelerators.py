"""Accelerators that a plan can be made for: memory, bandwidth and arithmetic, each with its source.

`memory_bytes` is what a program can allocate, as the driver reports it, which is less than the name
says: the figure is the `total` that engines print, where a log of one is known, else the vendor's.
Figures are for dense arithmetic in bfloat16, without sparsity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from octavo.errors import InvalidSpec
from octavo.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: int
    flops_bf16: int
    source: str


def _row(name: str, memory_gib: float, terabytes_s: float, teraflops: float, source: str) -> Accelerator:
    return Accelerator(
        name=name,
        memory_bytes=int(memory_gib * GIB),
        bandwidth_bytes_per_second=round(terabytes_s * 10**12),
        flops_bf16=round(teraflops * 10**12),
        source=source,
    )


_NVIDIA: Final = "NVIDIA data sheet, 2025-11"

ACCELERATORS: Final[Mapping[str, Accelerator]] = {
    row.name: row
    for row in (
        _row("A10G-24GB", 22.06, 0.600, 70, _NVIDIA),
        _row("L4-24GB", 22.05, 0.300, 121, _NVIDIA),
        _row("L40S-48GB", 44.40, 0.864, 362, _NVIDIA),
        _row("A100-40GB", 39.38, 1.555, 312, _NVIDIA),
        _row("A100-80GB", 79.15, 2.039, 312, _NVIDIA),
        _row("H100-80GB", 79.22, 3.352, 989, "total printed by vLLM 0.6.5 on an H100 80GB; " + _NVIDIA),
        _row("H200-141GB", 139.80, 4.800, 989, _NVIDIA),
        _row("B200-180GB", 178.35, 8.000, 2250, _NVIDIA),
        _row("T4-16GB", 14.74, 0.320, 65, "total printed by vLLM 0.7 on a T4; " + _NVIDIA),
        _row("RTX3090-24GB", 23.58, 0.936, 71, "total printed by vLLM 0.6 on an RTX 3090; " + _NVIDIA),
        _row("RTX4090-24GB", 23.53, 1.008, 165, "total printed by vLLM 0.9 on an RTX 4090; " + _NVIDIA),
    )
}


def find_accelerator(name: str) -> Accelerator:
    """The row by its name, letter case aside; an unknown name lists the known ones."""
    for known, row in ACCELERATORS.items():
        if known.lower() == name.lower():
            return row
    raise InvalidSpec(f"accelerator: {name!r} is not known; use one of {', '.join(ACCELERATORS)}")
