"""Builds latent attention from stored tensors.

Checkpoints pair neighbouring dimensions for rotation, this engine the two halves of a head. Queries and
keys meet only in their product, so that reordering both alike when they are loaded changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.latent_attention import CompressedQuery, LatentAttention
from octavo_engine.models.latent_config import LATENT_NORM_EPS, LatentConfig
from octavo_engine.models.layers import Linear
from octavo_engine.models.tensor_reading import TensorReader


def load_latent_attention(
    reader: TensorReader, config: DecoderConfig, latent: LatentConfig, prefix: str
) -> LatentAttention:
    """The attention of one layer."""
    down = reader.linear(
        [(prefix + "kv_a_proj_with_mqa", latent.cached_dim)], config.hidden_size, bias=config.output_bias
    )
    expanded = (latent.plain_dim + latent.value_dim, latent.latent_dim)
    up = reader.tensor(prefix + "kv_b_proj.weight", (config.num_heads * expanded[0], expanded[1]))
    up = up.view(config.num_heads, *expanded)
    key_up, value_up = torch.split(up, [latent.plain_dim, latent.value_dim], dim=1)
    output = [(prefix + "o_proj", config.hidden_size)]
    return LatentAttention(
        config=latent,
        num_heads=config.num_heads,
        query=_query(reader, config, latent, prefix),
        down=_reorder(down, latent.rope_dim, heads=1),
        latent_norm=reader.norm(prefix + "kv_a_layernorm", latent.latent_dim, eps=LATENT_NORM_EPS),
        key_up=key_up.contiguous(),
        value_up=value_up.transpose(1, 2).contiguous(),
        output=reader.linear(output, config.num_heads * latent.value_dim, bias=config.output_bias),
    )


def _query(
    reader: TensorReader, config: DecoderConfig, latent: LatentConfig, prefix: str
) -> Linear | CompressedQuery:
    size, rank = config.num_heads * latent.query_dim, latent.query_rank
    if rank is None:
        plain = reader.linear([(prefix + "q_proj", size)], config.hidden_size, bias=False)
        return _reorder(plain, latent.rope_dim, heads=config.num_heads)
    up = reader.linear([(prefix + "q_b_proj", size)], rank, bias=False)
    return CompressedQuery(
        down=reader.linear([(prefix + "q_a_proj", rank)], config.hidden_size, bias=config.output_bias),
        norm=reader.norm(prefix + "q_a_layernorm", rank, eps=LATENT_NORM_EPS),
        up=_reorder(up, latent.rope_dim, heads=config.num_heads),
    )


def _reorder(stored: Linear, rope_dim: int, *, heads: int) -> Linear:
    """Bring the last `rope_dim` outputs of each head from neighbours paired to halves paired."""
    index = halves_of_neighbours(stored.weight.shape[0] // heads, rope_dim)
    rows = torch.cat([index + head * len(index) for head in range(heads)]).to(stored.weight.device)
    return Linear(stored.weight[rows], None if stored.bias is None else stored.bias[rows])


def halves_of_neighbours(head_dim: int, rope_dim: int) -> Tensor:
    """Order of a head's dimensions in which rotated ones, its last, are paired across two halves.

    >>> halves_of_neighbours(6, 4).tolist()
    [0, 1, 2, 4, 3, 5]
    """
    plain, turned = torch.arange(head_dim - rope_dim), torch.arange(head_dim - rope_dim, head_dim)
    return torch.cat((plain, turned[0::2], turned[1::2]))
