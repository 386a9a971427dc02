"""Builds latent attention from stored tensors."""

from __future__ import annotations

import torch

from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.latent_attention import CompressedQuery, LatentAttention
from octavo_engine.models.latent_config import LATENT_NORM_EPS, LatentConfig
from octavo_engine.models.layers import Linear
from octavo_engine.models.neighbours import pair_halves
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
        down=pair_halves(down, latent.cached_dim, latent.rope_dim, heads=1),
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
        return pair_halves(plain, latent.query_dim, latent.rope_dim, heads=config.num_heads)
    up = reader.linear([(prefix + "q_b_proj", size)], rank, bias=False)
    return CompressedQuery(
        down=reader.linear([(prefix + "q_a_proj", rank)], config.hidden_size, bias=config.output_bias),
        norm=reader.norm(prefix + "q_a_layernorm", rank, eps=LATENT_NORM_EPS),
        up=pair_halves(up, latent.query_dim, latent.rope_dim, heads=config.num_heads),
    )
