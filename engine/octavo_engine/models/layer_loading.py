"""Builds the parts of a layer from stored tensors, by the names that checkpoints give them."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo_engine.models.attention import GroupedQueryAttention
from octavo_engine.models.decoder import DecoderLayer
from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.experts_config import ExpertsConfig
from octavo_engine.models.latent_attention import LatentAttention
from octavo_engine.models.latent_loading import load_latent_attention
from octavo_engine.models.layers import GatedMLP, Linear, PlainNorm, RMSNorm
from octavo_engine.models.mixture import MixtureOfExperts, Router, SigmoidRouter
from octavo_engine.models.neighbours import pair_halves
from octavo_engine.models.tensor_reading import TensorReader


class LayerLoader:
    """Loads the layers of one decoder, one at a time."""

    def __init__(self, reader: TensorReader, config: DecoderConfig) -> None:
        self._reader = reader
        self._config = config

    def load(self, index: int) -> DecoderLayer:
        """The layer of this number."""
        prefix, sandwich = f"model.layers.{index}.", self._config.family.sandwich_norms
        mlp_norm = "pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"
        experts = self._config.layers[index].experts
        return DecoderLayer(
            input_norm=self.norm(prefix + "input_layernorm"),
            attention=self._attention(
                prefix + "self_attn.", turned=self._config.layers[index].rope is not None
            ),
            attention_out_norm=self.norm(prefix + "post_attention_layernorm") if sandwich else None,
            mlp_norm=self.norm(prefix + mlp_norm),
            mlp=self._mixture(prefix, experts)
            if experts
            else self._dense(f"{prefix}{self._config.family.mlp_module}.", self._config.intermediate_size),
            mlp_out_norm=self.norm(prefix + "post_feedforward_layernorm") if sandwich else None,
        )

    def norm(self, name: str, size: int | None = None) -> RMSNorm:
        """A norm over the hidden size, or over `size`."""
        config = self._config
        return self._reader.norm(
            name, size or config.hidden_size, eps=config.norm_eps, adds_one=config.family.norm_adds_one
        )

    def _attention(self, prefix: str, *, turned: bool) -> GroupedQueryAttention | LatentAttention:
        config = self._config
        if config.latent is not None:
            return load_latent_attention(self._reader, config, config.latent, prefix)
        normed = config.family.qk_norm
        return GroupedQueryAttention(
            qkv=self._qkv(prefix, turned=turned),
            query_norm=self.norm(prefix + "q_norm", config.head_dim) if normed else None,
            key_norm=self.norm(prefix + "k_norm", config.head_dim) if normed else None,
            turned_norm=PlainNorm(config.norm_eps) if config.turned_norm and turned else None,
            output=self._reader.linear(
                [(prefix + "o_proj", config.hidden_size)],
                config.num_heads * config.head_dim,
                bias=config.output_bias,
            ),
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
        )

    def _qkv(self, prefix: str, *, turned: bool) -> Linear:
        config = self._config
        query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = [(prefix + "q_proj", query), (prefix + "k_proj", kv), (prefix + "v_proj", kv)]
        if config.family.fused_projections:
            parts = [(prefix + "qkv_proj", query + 2 * kv)]
        stored = self._reader.linear(parts, config.hidden_size, bias=config.qkv_bias)
        if not (turned and config.family.neighbours_paired):
            return stored
        return pair_halves(
            stored, config.head_dim, config.head_dim, heads=config.num_heads + config.num_kv_heads
        )

    def _dense(self, prefix: str, inner: int) -> GatedMLP:
        gate_up = [(prefix + "gate_proj", inner), (prefix + "up_proj", inner)]
        if self._config.family.fused_projections:
            gate_up = [(prefix + "gate_up_proj", 2 * inner)]
        return self._mlp(gate_up, prefix + "down_proj", inner, bias=self._config.mlp_bias)

    def _mlp(self, gate_up: list[tuple[str, int]], down: str, inner: int, *, bias: bool) -> GatedMLP:
        config = self._config
        return GatedMLP(
            gate_up=self._reader.linear(gate_up, config.hidden_size, bias=bias),
            down=self._reader.linear([(down, config.hidden_size)], inner, bias=bias),
            activation=config.activation,
        )

    def _mixture(self, prefix: str, experts: ExpertsConfig) -> MixtureOfExperts:
        family = experts.family
        block = f"{prefix}{family.module}."
        if not self._reader.has(f"{block}{family.router}.weight"):
            block = prefix + "mlp."
        stacked = self._reader.has(block + "experts.gate_up_proj")
        load = self._stacked_experts if stacked else self._single_experts
        return MixtureOfExperts(
            router=self._router(f"{block}{family.router}.weight", experts),
            experts=load(block + "experts.", experts),
            shared=self._dense(f"{block}{family.shared}.", experts.shared_size)
            if experts.shared_size
            else None,
            weighs_inputs=family.weighs_inputs,
        )

    def _router(self, name: str, experts: ExpertsConfig) -> Router | SigmoidRouter:
        shape = (experts.num_experts, self._config.hidden_size)
        if experts.family.weighs_inputs:
            return SigmoidRouter(weight=self._reader.tensor(name, shape), num_chosen=experts.num_chosen)
        dtype = torch.float32 if experts.family.float32_router else None
        return Router(
            weight=self._reader.tensor(name, shape, dtype),
            num_chosen=experts.num_chosen,
            normalized=experts.normalized,
            scale=experts.scale,
            groups=experts.groups,
        )

    def _single_experts(self, prefix: str, experts: ExpertsConfig) -> tuple[GatedMLP, ...]:
        """As published: three tensors for each expert."""
        family, inner = experts.family, experts.inner_size
        return tuple(
            self._mlp(
                [(f"{prefix}{number}.{name}", inner) for name in (family.gate, family.up)],
                f"{prefix}{number}.{family.down}",
                inner,
                bias=False,
            )
            for number in range(experts.num_experts)
        )

    def _stacked_experts(self, prefix: str, experts: ExpertsConfig) -> tuple[GatedMLP, ...]:
        """As `transformers` holds them: two tensors for all experts of a layer."""
        inner, hidden = experts.inner_size, self._config.hidden_size
        gate_up = self._stack(prefix + "gate_up_proj", 2 * inner, hidden, experts)
        down = self._stack(prefix + "down_proj", hidden, inner, experts)
        return tuple(
            GatedMLP(
                gate_up=Linear(gate_up[number]),
                down=Linear(down[number]),
                activation=self._config.activation,
            )
            for number in range(experts.num_experts)
        )

    def _stack(self, name: str, out_size: int, in_size: int, experts: ExpertsConfig) -> Tensor:
        """`[X, out, in]`; where it is stored the other way round, a view: a copy could take gigabytes."""
        if experts.family.transposed:
            return self._reader.tensor(name, (experts.num_experts, in_size, out_size)).transpose(1, 2)
        return self._reader.tensor(name, (experts.num_experts, out_size, in_size))
