"""The forward pass of a decoder-only transformer over the rows of one step.

Letters in shapes: T rows, E hidden size, V vocabulary.
Attention itself is passed in: the model does not know where keys and values are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from octavo_engine.models.attention import Attend, GroupedQueryAttention, Placing
from octavo_engine.models.decoder_config import DecoderConfig, QueryTemperature
from octavo_engine.models.latent_attention import LatentAttention
from octavo_engine.models.layers import GatedMLP, RMSNorm
from octavo_engine.models.mixture import MixtureOfExperts
from octavo_engine.models.rope import RotaryEmbedding
from octavo_engine.models.rope_config import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """One layer's weights; the optional norms are those of some families only."""

    input_norm: RMSNorm
    attention: GroupedQueryAttention | LatentAttention
    attention_out_norm: RMSNorm | None
    mlp_norm: RMSNorm
    mlp: GatedMLP | MixtureOfExperts
    mlp_out_norm: RMSNorm | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A loaded model."""

    config: DecoderConfig
    embeddings: Tensor  # [V, E]
    embedding_scale: Tensor | None
    layers: tuple[DecoderLayer, ...]
    ropes: dict[RopeConfig, RotaryEmbedding]
    final_norm: RMSNorm
    head: Tensor  # [V, E], rows of padded ids left out

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:  # [T], [T] -> [T, E]
        """Hidden states of all rows, before the final norm."""
        hidden = embedding(token_ids, self.embeddings)
        if self.embedding_scale is not None:
            hidden = hidden * self.embedding_scale
        placings = self._placings(positions, hidden.dtype)
        for index, layer in enumerate(self.layers):
            placing = placings[self.config.layers[index].rope]
            out = layer.attention(index, layer.input_norm(hidden), placing, attend)
            hidden = hidden + (out if layer.attention_out_norm is None else layer.attention_out_norm(out))
            out = layer.mlp(layer.mlp_norm(hidden))
            hidden = hidden + (out if layer.mlp_out_norm is None else layer.mlp_out_norm(out))
        return hidden

    def _placings(self, positions: Tensor, dtype: torch.dtype) -> dict[RopeConfig | None, Placing]:
        """For each rotary embedding, and for layers that have none."""
        temperature = self.config.temperature
        scale = None if temperature is None else query_scale(temperature, positions)
        placings: dict[RopeConfig | None, Placing] = {None: Placing(turn=None, query_scale=scale)}
        for config, rope in self.ropes.items():
            placings[config] = Placing(turn=rope.cos_sin(positions, dtype))
        return placings

    def logits(self, hidden: Tensor) -> Tensor:  # [R, E] -> [R, V] float32
        """Scores of the next token for some rows."""
        scores = torch.nn.functional.linear(self.final_norm(hidden), self.head).to(torch.float32)
        cap = self.config.logits_softcap
        return scores if cap is None else cap * torch.tanh(scores / cap)


def query_scale(temperature: QueryTemperature, positions: Tensor) -> Tensor:  # [T] -> [T, 1, 1] float32
    """One, and with each further `floor` tokens a little more."""
    spans = torch.floor((positions.to(torch.float32) + 1.0) / temperature.floor)
    return (torch.log1p(spans) * temperature.strength + 1.0).view(-1, 1, 1)
