"""Latent attention (MLA): one compressed vector per token stands for the keys and values of all heads.

Expanding that vector to a head's key and value is linear. So queries are brought to the latent space
instead ("absorbed"), attention runs over the vectors as they are cached, as over one KV head, and what
it gives is expanded to values: nothing is ever expanded for tokens of the past.

Letters in shapes: T rows, E hidden size, H heads, L latent width, R width of the turned key, N width
of a head's query without positions, V value width.
Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo_engine.models.attention import Attend, Placing
from octavo_engine.models.latent_config import LatentConfig
from octavo_engine.models.layers import Linear, RMSNorm
from octavo_engine.models.rope import rotate


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedQuery:
    """Queries by way of a narrow vector."""

    down: Linear
    norm: RMSNorm
    up: Linear

    def __call__(self, x: Tensor) -> Tensor:  # [T, E] -> [T, H * (N + R)]
        """Project each row."""
        return self.up(self.norm(self.down(x)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Takes the place of grouped-query attention in a layer."""

    config: LatentConfig
    num_heads: int
    query: Linear | CompressedQuery
    down: Linear
    """To the latent vector and the key that carries positions."""
    latent_norm: RMSNorm
    key_up: Tensor  # [H, N, L]
    value_up: Tensor  # [H, L, V]
    output: Linear

    def __call__(self, layer: int, x: Tensor, placing: Placing, attend: Attend) -> Tensor:
        """[T, E] -> [T, E]."""
        widths = self.config
        query = self.query(x).view(x.shape[0], self.num_heads, widths.query_dim)
        plain, turned = torch.split(query, [widths.plain_dim, widths.rope_dim], dim=-1)
        latent, key = torch.split(self.down(x).unsqueeze(1), [widths.latent_dim, widths.rope_dim], dim=-1)
        if placing.turn is not None:
            turned, key = rotate(turned, *placing.turn), rotate(key, *placing.turn)
        absorbed = torch.bmm(plain.transpose(0, 1), self.key_up).transpose(0, 1)  # [T, H, L]
        attended = attend(
            layer,
            torch.cat((absorbed, turned), dim=-1),  # [T, H, L + R]
            torch.cat((self.latent_norm(latent), key), dim=-1),  # [T, 1, L + R]
            None,
        )
        latents = attended[..., : widths.latent_dim].transpose(0, 1)  # [H, T, L]
        return self.output(torch.bmm(latents, self.value_up).transpose(0, 1).flatten(1))
