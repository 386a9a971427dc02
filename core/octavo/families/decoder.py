"""Dense decoders of the Llama family: one attention and one MLP in each layer.

A family is described by its departures from Llama (`DecoderTraits`), so that a new one is a line of
data and not a parser of its own.
Source: the model classes of `transformers`; parameter counts are compared with theirs in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.config_fields import ConfigFields
from octavo.layers import AttentionCache, Layer, Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions

Switch = bool | str
"""A fixed yes or no, or the name of the configuration field that decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTraits:
    """How a family departs from Llama."""

    qkv_bias: Switch = "attention_bias"
    output_bias: Switch = "attention_bias"
    mlp_bias: Switch = "mlp_bias"
    gated: bool = True
    qk_norm: Literal["none", "head", "full"] = "none"
    norms_per_layer: int = 2
    norm_vectors: int = 1
    """Vectors per norm: 1 for RMSNorm, 2 (weight and bias) for LayerNorm."""


LLAMA = DecoderTraits()


def is_on(fields: ConfigFields, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else fields.flag(switch)


def vector(path: str, size: int, *, copies: int = 1) -> Weight:
    """A bias or a norm: small, never quantized, on every device."""
    return Weight(path=path, outputs=size, copies=copies, role="vector", pieces=1)


def linear(
    path: str, outputs: int, inputs: int, *, bias: bool = False, pieces: int | None = None
) -> list[Weight]:
    """A linear map, with its bias if it has one."""
    weights = [Weight(path=path, outputs=outputs, inputs=inputs, pieces=pieces)]
    return [*weights, vector(f"{path}.bias", outputs)] if bias else weights


def attention_weights(fields: ConfigFields, dims: Dimensions, traits: DecoderTraits) -> list[Weight]:
    """Query, key, value and output maps, and the norms of queries and keys."""
    bias = is_on(fields, traits.qkv_bias)
    query_width, kv_width = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    weights = [
        *linear("self_attn.q_proj", query_width, dims.hidden, bias=bias),
        *linear("self_attn.k_proj", kv_width, dims.hidden, bias=bias, pieces=dims.kv_heads),
        *linear("self_attn.v_proj", kv_width, dims.hidden, bias=bias, pieces=dims.kv_heads),
        *linear("self_attn.o_proj", dims.hidden, query_width, bias=is_on(fields, traits.output_bias)),
    ]
    if traits.qk_norm == "head":
        weights.append(vector("self_attn.qk_norm", dims.head_dim, copies=2))
    if traits.qk_norm == "full":
        weights.append(vector("self_attn.qk_norm", query_width + kv_width))
    return weights


def mlp_weights(path: str, hidden: int, width: int, *, gated: bool, bias: bool) -> list[Weight]:
    """Gate, up and down (or, not gated, up and down)."""
    gate = linear(f"{path}.gate_proj", width, hidden, bias=bias) if gated else []
    up = linear(f"{path}.up_proj", width, hidden, bias=bias)
    return [*gate, *up, *linear(f"{path}.down_proj", hidden, width, bias=bias)]


def norm_weights(dims: Dimensions, traits: DecoderTraits) -> list[Weight]:
    copies = traits.norms_per_layer * traits.norm_vectors
    return [vector("norms", dims.hidden, copies=copies)] if copies else []


def outside_weights(fields: ConfigFields, dims: Dimensions, traits: DecoderTraits) -> tuple[Weight, ...]:
    """Embedding, last norm, and the head unless it is the embedding itself."""
    weights = [
        Weight(path="model.embed_tokens", outputs=dims.vocab, inputs=dims.hidden, role="embedding"),
        vector("model.norm", dims.hidden, copies=traits.norm_vectors),
    ]
    if not fields.flag("tie_word_embeddings"):
        weights.append(Weight(path="lm_head", outputs=dims.vocab, inputs=dims.hidden, role="head"))
    return tuple(weights)


def parse_decoder(fields: ConfigFields, traits: DecoderTraits = LLAMA) -> ModelShape:
    """A model of equal layers, each with full attention."""
    dims = read_dimensions(fields)
    layer = Layer(
        caches=(AttentionCache(num_kv_heads=dims.kv_heads, key_dim=dims.head_dim, value_dim=dims.head_dim),),
        weights=(
            *attention_weights(fields, dims, traits),
            *mlp_weights(
                "mlp", dims.hidden, dims.intermediate, gated=traits.gated, bias=is_on(fields, traits.mlp_bias)
            ),
            *norm_weights(dims, traits),
        ),
    )
    return ModelShape(
        layers=(layer,) * dims.num_layers,
        outside=outside_weights(fields, dims, traits),
        hidden_size=dims.hidden,
        vocab_size=dims.vocab,
        max_position_embeddings=dims.positions,
        num_attention_heads=dims.heads,
        widest_activation=3 * dims.intermediate,
    )
