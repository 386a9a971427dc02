"""Latent attention (MLA), read from a configuration: widths of what is compressed and expanded.

Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; the model classes of `transformers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo_engine.models.config_fields import ConfigFields
from octavo_engine.models.rope_config import RopeConfig, yarn_scale

LATENT_NORM_EPS: Final = 1e-6
"""Of the norms on compressed vectors, whatever `rms_norm_eps` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Widths of one head, and of the vector that stands for all heads' keys and values of a token."""

    query_rank: int | None
    """Width that queries are compressed to; None: they are projected at once."""
    latent_dim: int
    rope_dim: int
    """Of the one key that carries positions, shared by all heads."""
    plain_dim: int
    """Of a head's query and key without positions."""
    value_dim: int

    @property
    def query_dim(self) -> int:
        """Of one head's query."""
        return self.plain_dim + self.rope_dim

    @property
    def cached_dim(self) -> int:
        """What is kept of each token: the latent vector and the turned key, once for all heads."""
        return self.latent_dim + self.rope_dim


def parse_latent(fields: ConfigFields) -> LatentConfig:
    """Read the widths; each must be stated."""
    return LatentConfig(
        query_rank=fields.optional_integer("q_lora_rank"),
        latent_dim=fields.integer("kv_lora_rank"),
        rope_dim=fields.integer("qk_rope_head_dim"),
        plain_dim=fields.integer("qk_nope_head_dim"),
        value_dim=fields.integer("v_head_dim"),
    )


def latent_attention_scale(latent: LatentConfig, rope: RopeConfig) -> float:
    """The root of a query's width, and the square of yarn's own scale where `mscale_all_dim` asks for it."""
    stated = dict(rope.parameters)
    scale, factor = stated.get("mscale_all_dim"), stated.get("factor")
    if rope.kind == "default" or not isinstance(scale, int | float) or not isinstance(factor, int | float):
        return float(latent.query_dim**-0.5)
    return float(latent.query_dim**-0.5 * yarn_scale(factor, scale) ** 2)
