"""The tensors that hold keys and values, and which of them a layer uses.

All groups share the same blocks: a block id stands for one block in each of the `num_slots` pairs of
tensors, and the i-th layer of every group uses the i-th pair. Equal blocks for all groups need groups
of equal size, so layers of one kind are split into as many groups as that takes.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import torch
from torch import Tensor

from octavo_engine.scheduling.kv_groups import KVCacheGroup


def group_layers(windows: SequenceOf[int | None], *, chunked: bool = False) -> tuple[KVCacheGroup, ...]:
    """Divide layers, given each one's window, into groups of equal size (the last of a kind may be short).

    `chunked` says of all windows that they stand side by side.

    >>> [group.layers for group in group_layers([16, None, 16, 16, None, 16])]
    [(0, 2), (3, 5), (1, 4)]
    """
    by_window: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        by_window.setdefault(window, []).append(layer)
    size = min(len(layers) for layers in by_window.values())
    return tuple(
        KVCacheGroup(
            layers=tuple(layers[start : start + size]),
            window=window,
            chunked=chunked and window is not None,
        )
        for window, layers in by_window.items()
        for start in range(0, len(layers), size)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheShape:
    """Sizes of one block."""

    groups: tuple[KVCacheGroup, ...]
    block_size: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    """0: the values are the keys (latent attention, where one vector stands for both)."""
    dtype: torch.dtype

    @property
    def num_slots(self) -> int:
        """Layers that one block id serves at once."""
        return max(len(group.layers) for group in self.groups)

    @property
    def elements_per_token(self) -> int:
        """Numbers that one layer keeps of one token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)

    @property
    def block_bytes(self) -> int:
        """Bytes of keys and values of one block."""
        return self.num_slots * self.block_size * self.elements_per_token * self.dtype.itemsize


class KVCache:
    """Keys and values of `num_blocks` usable blocks and the null block."""

    __slots__ = ("group_of_layer", "keys", "shape", "slot_of_layer", "values")

    def __init__(self, shape: KVCacheShape, *, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        size = (num_blocks + 1, shape.block_size, shape.num_kv_heads)  # [N, S, K]
        self.keys = [_zeros((*size, shape.key_dim), shape.dtype, device) for _ in range(shape.num_slots)]
        self.values = self.keys
        if shape.value_dim:
            self.values = [_zeros((*size, shape.value_dim), shape.dtype, device) for _ in self.keys]
        self.group_of_layer: dict[int, int] = {}
        self.slot_of_layer: dict[int, int] = {}
        for group_index, group in enumerate(shape.groups):
            for slot, layer in enumerate(group.layers):
                self.group_of_layer[layer] = group_index
                self.slot_of_layer[layer] = slot


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On a CPU they are the system's own: a page takes memory once a block in it is written.

    `torch.zeros` would write them all, which takes seconds and the whole pool's memory at once.
    """
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    pages = mmap(-1, prod(size) * dtype.itemsize, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(size)
