"""How a layer's queries, keys and values come from its rows, and what becomes of what it attended to.

Letters in shapes: T rows, E hidden size, H query heads, K KV heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo_engine.models.layers import Linear, PlainNorm, RMSNorm
from octavo_engine.models.rope import rotate

Attend = Callable[[int, Tensor, Tensor, Tensor | None], Tensor]
"""(layer, query [T, H, D], key [T, K, D], value [T, K, D]) -> [T, H, D]; no value: the keys are the values"""

CosSin = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """How the rows' positions enter a layer's attention."""

    turn: CosSin | None
    """None: not by turning."""
    query_scale: Tensor | None = None  # [T, 1, 1] float32
    """On queries, where attention is sharper the further a row is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQueryAttention:
    """Keys and values of each KV head, shared by H / K query heads."""

    qkv: Linear
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None
    turned_norm: PlainNorm | None
    """On queries and keys once they are turned."""
    output: Linear
    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __call__(self, layer: int, x: Tensor, placing: Placing, attend: Attend) -> Tensor:
        """[T, E] -> [T, E]."""
        num_rows, kv_size = x.shape[0], self.num_kv_heads * self.head_dim
        parts = torch.split(self.qkv(x), [self.num_heads * self.head_dim, kv_size, kv_size], dim=-1)
        query = parts[0].reshape(num_rows, self.num_heads, self.head_dim)
        key, value = (part.reshape(num_rows, self.num_kv_heads, self.head_dim) for part in parts[1:])
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if placing.turn is not None:
            query, key = rotate(query, *placing.turn), rotate(key, *placing.turn)
        if self.turned_norm is not None:
            query, key = self.turned_norm(query), self.turned_norm(key)
        if placing.query_scale is not None:
            query = (query * placing.query_scale).to(query.dtype)
        return self.output(attend(layer, query, key, value).reshape(num_rows, -1))
