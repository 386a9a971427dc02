"""The forward pass of a decoder-only transformer over the rows of one step.

Letters in shapes: T rows, E hidden size, V vocabulary.
Attention itself is passed in: the model does not know where keys and values are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding

from octavo_engine.models.attention import Attend, GroupedQueryAttention
from octavo_engine.models.decoder_config import DecoderConfig
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
        cos_sin = {config: rope.cos_sin(positions, hidden.dtype) for config, rope in self.ropes.items()}
        for index, layer in enumerate(self.layers):
            rope = self.config.layers[index].rope
            turn = None if rope is None else cos_sin[rope]
            out = layer.attention(index, layer.input_norm(hidden), turn, attend)
            hidden = hidden + (out if layer.attention_out_norm is None else layer.attention_out_norm(out))
            out = layer.mlp(layer.mlp_norm(hidden))
            hidden = hidden + (out if layer.mlp_out_norm is None else layer.mlp_out_norm(out))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:  # [R, E] -> [R, V] float32
        """Scores of the next token for some rows."""
        scores = torch.nn.functional.linear(self.final_norm(hidden), self.head).to(torch.float32)
        cap = self.config.logits_softcap
        return scores if cap is None else cap * torch.tanh(scores / cap)
