"""From a model directory to a `Decoder`: names of tensors, fused projections, the asked dtype."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.models.decoder import Decoder, DecoderLayer
from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.layers import GatedMLP, Linear, RMSNorm
from octavo_engine.models.rope import RotaryEmbedding
from octavo_engine.models.rope_config import RopeConfig
from octavo_engine.models.weight_files import WeightFiles

IGNORABLE: Final = ("rotary_emb.inv_freq", "lm_head.weight")
"""Derived buffers of old checkpoints, and the copy of tied embeddings."""

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


def read_model_json(model_dir: Path, name: str, *, required: bool) -> dict[str, object]:
    """A JSON object beside the weights; `{}` where it is absent and not required."""
    path = model_dir / name
    if not path.exists():
        if required:
            raise ModelFileError(f"{name}: missing from {model_dir}")
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ModelFileError(f"{name}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{name}: must hold an object, got {type(content).__name__}")
    return content


class DecoderLoader:
    """Builds one decoder, a layer at a time, so that at most one layer is held twice."""

    def __init__(
        self,
        files: WeightFiles,
        config: DecoderConfig,
        *,
        dtype: torch.dtype,
        device: torch.device,
        num_token_ids: int,
        max_model_len: int,
    ) -> None:
        self._files = files
        self._config = config
        self._dtype = dtype
        self._device = device
        self._num_token_ids = num_token_ids
        self._max_model_len = max_model_len
        self._used: set[str] = set()

    def load(self, progress: Callable[[float], None]) -> Decoder:
        """Read everything; `progress` gets the share of layers that are loaded."""
        config = self._config
        embeddings = self._read("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
        head = embeddings
        if not config.tied_embeddings:
            head = self._read("lm_head.weight", (config.vocab_size, config.hidden_size))
        layers = []
        for index in range(len(config.layers)):
            layers.append(self._layer(f"model.layers.{index}."))
            progress((index + 1) / len(config.layers))
        final_norm = self._norm("model.norm", config.hidden_size)
        self._files.require_all_used(self._used, ignorable=IGNORABLE)
        return Decoder(
            config=config,
            embeddings=embeddings,
            embedding_scale=self._embedding_scale(),
            layers=tuple(layers),
            ropes=self._ropes(),
            final_norm=final_norm,
            head=head[: self._num_token_ids],
        )

    def _layer(self, prefix: str) -> DecoderLayer:
        config, size = self._config, self._config.hidden_size
        sandwich = config.family.sandwich_norms
        mlp_norm = "pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"
        attention = prefix + "self_attn."
        return DecoderLayer(
            input_norm=self._norm(prefix + "input_layernorm", size),
            qkv=self._qkv(attention),
            query_norm=self._head_norm(attention + "q_norm"),
            key_norm=self._head_norm(attention + "k_norm"),
            output=self._linear(
                [(attention + "o_proj", size)], config.num_heads * config.head_dim, bias=config.output_bias
            ),
            attention_out_norm=self._norm(prefix + "post_attention_layernorm", size) if sandwich else None,
            mlp_norm=self._norm(prefix + mlp_norm, size),
            mlp=self._mlp(prefix + "mlp."),
            mlp_out_norm=self._norm(prefix + "post_feedforward_layernorm", size) if sandwich else None,
        )

    def _qkv(self, prefix: str) -> Linear:
        config = self._config
        query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = [(prefix + "q_proj", query), (prefix + "k_proj", kv), (prefix + "v_proj", kv)]
        if config.family.fused_projections:
            parts = [(prefix + "qkv_proj", query + 2 * kv)]
        return self._linear(parts, config.hidden_size, bias=config.qkv_bias)

    def _mlp(self, prefix: str) -> GatedMLP:
        config = self._config
        inner = config.intermediate_size
        parts = [(prefix + "gate_proj", inner), (prefix + "up_proj", inner)]
        if config.family.fused_projections:
            parts = [(prefix + "gate_up_proj", 2 * inner)]
        return GatedMLP(
            gate_up=self._linear(parts, config.hidden_size, bias=config.mlp_bias),
            down=self._linear([(prefix + "down_proj", config.hidden_size)], inner, bias=config.mlp_bias),
            activation=config.activation,
        )

    def _linear(self, parts: list[tuple[str, int]], in_size: int, *, bias: bool) -> Linear:
        """One projection of several stored ones, stacked: one matrix product instead of three."""
        weight = self._stack([(f"{name}.weight", (out_size, in_size)) for name, out_size in parts])
        stacked_bias = (
            self._stack([(f"{name}.bias", (out_size,)) for name, out_size in parts]) if bias else None
        )
        return Linear(weight, stacked_bias)

    def _stack(self, parts: list[tuple[str, tuple[int, ...]]]) -> Tensor:
        rows = sum(shape[0] for _, shape in parts)
        stacked = torch.empty((rows, *parts[0][1][1:]), dtype=self._dtype, device=self._device)
        start = 0
        for name, shape in parts:
            stacked[start : start + shape[0]] = self._stored(name, shape)
            start += shape[0]
        return stacked

    def _norm(self, name: str, size: int) -> RMSNorm:
        stored = self._stored(f"{name}.weight", (size,)).to(self._device)
        if self._config.family.norm_adds_one:
            return RMSNorm(1.0 + stored.to(torch.float32), self._config.norm_eps)
        return RMSNorm(stored.to(self._dtype, copy=True), self._config.norm_eps)

    def _head_norm(self, name: str) -> RMSNorm | None:
        return self._norm(name, self._config.head_dim) if self._config.family.qk_norm else None

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A copy of its own: a mapped file could be evicted, or change, below a running engine."""
        return self._stored(name, shape).to(self._device, self._dtype, copy=True)

    def _stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._used.add(name)
        return self._files.read(name, shape)

    def _embedding_scale(self) -> Tensor | None:
        if not self._config.family.scaled_embeddings:
            return None
        return torch.tensor(self._config.hidden_size**0.5, dtype=self._dtype, device=self._device)

    def _ropes(self) -> dict[RopeConfig, RotaryEmbedding]:
        configs = {layer.rope for layer in self._config.layers if layer.rope is not None}
        return {
            rope: RotaryEmbedding(rope, max_model_len=self._max_model_len, device=self._device)
            for rope in configs
        }
