"""Brings heads of checkpoints that pair neighbouring dimensions for rotation to our pairing of halves.

Queries and keys meet only in their product, so that reordering both alike when they are loaded changes
nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo_engine.models.layers import Linear


def pair_halves(stored: Linear, head_dim: int, rope_dim: int, *, heads: int) -> Linear:
    """Reorder the last `rope_dim` outputs of each of the first `heads` heads."""
    index = halves_of_neighbours(head_dim, rope_dim)
    rows = torch.arange(stored.weight.shape[0])
    rows[: heads * head_dim] = torch.cat([index + head * head_dim for head in range(heads)])
    rows = rows.to(stored.weight.device)
    return Linear(stored.weight[rows], None if stored.bias is None else stored.bias[rows])


def halves_of_neighbours(head_dim: int, rope_dim: int) -> Tensor:
    """Order of a head's dimensions in which rotated ones, its last, are paired across two halves.

    >>> halves_of_neighbours(6, 4).tolist()
    [0, 1, 2, 4, 3, 5]
    """
    plain, turned = torch.arange(head_dim - rope_dim), torch.arange(head_dim - rope_dim, head_dim)
    return torch.cat((plain, turned[0::2], turned[1::2]))
