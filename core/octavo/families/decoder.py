"""Decoders of the Llama family: one attention and one MLP (or mixture of experts) in each layer.

A family is described by its departures from Llama (`DecoderTraits`), so that a new one is a line of
data and not a parser of its own.
Source: the model classes of `transformers`; parameter counts are compared with theirs in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.config_fields import ConfigFields
from octavo.families import feed_forward
from octavo.families.attention import LLAMA_ATTENTION, AttentionTraits, attention
from octavo.families.feed_forward import ExpertTraits, dense, experts, sparse_layer_flags
from octavo.families.parts import Part, Switch, embedding, head, is_on, vector
from octavo.families.windows import WindowRule, read_reaches
from octavo.layers import Confidence, Layer, Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTraits:
    """How a family departs from Llama."""

    attention: AttentionTraits = LLAMA_ATTENTION
    window_rule: WindowRule = "none"
    window_period: int = 0
    mlp_bias: Switch = "mlp_bias"
    gated: bool = True
    dense_width_field: str = "intermediate_size"
    experts: ExpertTraits | None = None
    norms_per_layer: int = 2
    norm_vectors: int = 1
    """Vectors per norm: 1 for RMSNorm, 2 (weight and bias) for LayerNorm, 0 for one without weights."""
    learned_positions: int | None = None
    """Rows of a learned position table beyond the longest context; None: no such table."""
    embedding_norm: bool = False
    head_bias: Switch = False
    vectors_per_layer: int = 0
    """Single numbers that a layer learns besides (activation parameters)."""
    confidence: Confidence = "high"
    notes: tuple[str, ...] = ()


LLAMA = DecoderTraits()


def parse_decoder(fields: ConfigFields, traits: DecoderTraits = LLAMA) -> ModelShape:
    """A model of attention layers with their reach, each followed by an MLP or by experts."""
    dims = read_dimensions(fields)
    reaches = read_reaches(fields, dims.num_layers, traits.window_rule, period=traits.window_period)
    mixers = [attention(fields, dims, traits.attention, reach=reach) for reach in reaches]
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def mlps_of(fields: ConfigFields, dims: Dimensions, traits: DecoderTraits) -> Sequence[Part]:
    """The MLP of every layer."""
    width = fields.integer_or(traits.dense_width_field, dims.intermediate, least=1)
    plain = dense(dims.hidden, width, gated=traits.gated, bias=is_on(fields, traits.mlp_bias))
    if traits.experts is None or not feed_forward.num_experts(fields):
        return [plain] * dims.num_layers
    flags = sparse_layer_flags(fields, dims.num_layers, traits.experts)
    sparse = experts(fields, dims, traits.experts) if any(flags) else plain
    return [sparse if is_sparse else plain for is_sparse in flags]


def assemble(
    fields: ConfigFields,
    dims: Dimensions,
    traits: DecoderTraits,
    mixers: Sequence[Part],
    mlps: Sequence[Part],
    *,
    extra_outside: Sequence[Weight] = (),
) -> ModelShape:
    """Mixers and MLPs, layer by layer, with the norms, the embedding and the head around them."""
    norms = norm_weights(dims, traits)
    return ModelShape(
        layers=tuple(
            Layer(caches=(*mixer.caches, *mlp.caches), weights=(*mixer.weights, *mlp.weights, *norms))
            for mixer, mlp in zip(mixers, mlps, strict=True)
        ),
        outside=(*outside_weights(fields, dims, traits), *extra_outside),
        hidden_size=dims.hidden,
        vocab_size=dims.vocab,
        max_position_embeddings=dims.positions,
        num_attention_heads=dims.heads,
        widest_activation=max(part.width for part in (*mixers, *mlps)),
        confidence=traits.confidence,
        notes=traits.notes,
    )


def norm_weights(dims: Dimensions, traits: DecoderTraits) -> tuple[Weight, ...]:
    copies = traits.norms_per_layer * traits.norm_vectors
    norms = (vector("norms", dims.hidden, copies=copies),) if copies else ()
    scalars = (vector("scalars", traits.vectors_per_layer),) if traits.vectors_per_layer else ()
    return norms + scalars


def outside_weights(fields: ConfigFields, dims: Dimensions, traits: DecoderTraits) -> list[Weight]:
    """Embeddings, last norm, and the head unless it is the embedding itself."""
    weights = [embedding("model.embed_tokens", dims.vocab, dims.hidden)]
    if traits.learned_positions is not None:
        rows = dims.positions + traits.learned_positions
        weights.append(embedding("model.embed_positions", rows, dims.hidden))
    norms = 1 + traits.embedding_norm
    if traits.norm_vectors:
        weights.append(vector("model.norm", dims.hidden, copies=norms * traits.norm_vectors))
    head_bias = is_on(fields, traits.head_bias)
    if not fields.flag("tie_word_embeddings"):
        weights += head("lm_head", dims.vocab, dims.hidden, bias=head_bias)
    elif head_bias:
        weights.append(vector("lm_head.bias", dims.vocab))
    return weights
