"""Stored tensors as the parts of a layer, in the asked dtype; remembers which names were used."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.models.layers import Linear, RMSNorm
from octavo_engine.models.weight_files import WeightSource


class TensorReader:
    """Copies what it reads: a mapped file could be evicted, or change, below a running engine."""

    def __init__(self, files: WeightSource, *, dtype: torch.dtype, device: torch.device) -> None:
        self._files = files
        self._dtype = dtype
        self._device = device
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether a file holds this tensor."""
        return name in self._files.tensors

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """One tensor; its shape must be this one."""
        return self._stored(name, shape).to(self._device, dtype or self._dtype, copy=True)

    def linear(self, parts: list[tuple[str, int]], in_size: int, *, bias: bool) -> Linear:
        """One projection of several stored ones, stacked: one matrix product instead of three."""
        weight = self._stack([(f"{name}.weight", (out_size, in_size)) for name, out_size in parts])
        biases = [(f"{name}.bias", (out_size,)) for name, out_size in parts]
        return Linear(weight, self._stack(biases) if bias else None)

    def norm(self, name: str, size: int, *, eps: float, adds_one: bool = False) -> RMSNorm:
        """A norm; `adds_one` scales by one more than what is stored."""
        if adds_one:
            return RMSNorm(1.0 + self.tensor(f"{name}.weight", (size,), torch.float32), eps)
        return RMSNorm(self.tensor(f"{name}.weight", (size,)), eps)

    def require_all_used(self, *, ignorable: tuple[str, ...]) -> None:
        """Refuse a checkpoint with tensors that the forward pass would not apply."""
        left = sorted(name for name in set(self._files.tensors) - self._used if not name.endswith(ignorable))
        if left:
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise ModelFileError(f"tensors that this model type does not have: {shown}")

    def _stack(self, parts: Sequence[tuple[str, tuple[int, ...]]]) -> Tensor:
        rows = sum(shape[0] for _, shape in parts)
        stacked = torch.empty((rows, *parts[0][1][1:]), dtype=self._dtype, device=self._device)
        start = 0
        for name, shape in parts:
            stacked[start : start + shape[0]] = self._stored(name, shape)
            start += shape[0]
        return stacked

    def _stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._used.add(name)
        return self._files.read(name, shape)
