"""Encoder–decoders: the decoder caches its own tokens, and the encoder's output once a sequence.

The encoder itself caches nothing. Cross-attention holds keys and values of every encoder position:
a constant for Whisper (its audio window), the longest input for the others.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.families.attention import AttentionTraits, attention
from octavo.families.parts import Part, embedding, head, linear, mlp_weights, vector
from octavo.layers import CrossCache, Layer, Weight
from octavo.model_shape import Dimensions, ModelShape

ALL_BIAS = AttentionTraits(qkv_bias=True, output_bias=True)
NO_BIAS = AttentionTraits(qkv_bias=False, output_bias=False)
CONV_KERNEL = 3
T5_INPUT_TOKENS = 512
"""T5 states no longest input: relative positions allow any; its own training used 512."""


def _side(fields: ConfigFields, side: str, hidden: int) -> Dimensions:
    heads = fields.integer(f"{side}_attention_heads")
    return Dimensions(
        num_layers=fields.integer(f"{side}_layers", most=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, hidden // heads),
        intermediate=fields.integer(f"{side}_ffn_dim"),
        vocab=fields.integer("vocab_size"),
        positions=fields.integer_or("max_target_positions", fields.integer_or("max_position_embeddings", 0)),
    )


def _cross(fields: ConfigFields, dims: Dimensions, traits: AttentionTraits, num_tokens: int) -> Part:
    """Cross-attention: like self-attention, but over another input."""
    part = attention(fields, dims, traits)
    cache = CrossCache(num_kv_heads=dims.kv_heads, head_dim=dims.head_dim, num_tokens=num_tokens)
    return replace(part, caches=(cache,))


def _without_key_bias(part: Part) -> Part:
    return replace(part, weights=tuple(w for w in part.weights if w.path != "self_attn.k_proj.bias"))


def parse_whisper(fields: ConfigFields) -> ModelShape:
    hidden, frames = fields.integer("hidden_size"), fields.integer("max_source_positions")
    bins = fields.integer("num_mel_bins")
    encoder, decoder = _side(fields, "encoder", hidden), _side(fields, "decoder", hidden)
    stem = [
        *linear("model.encoder.conv1", hidden, bins * CONV_KERNEL, bias=True, role="tower"),
        *linear("model.encoder.conv2", hidden, hidden * CONV_KERNEL, bias=True, role="tower"),
        embedding("model.encoder.embed_positions", frames, hidden),
        embedding("model.decoder.embed_positions", decoder.positions, hidden),
    ]
    encoder_mixer = _without_key_bias(attention(fields, encoder, ALL_BIAS))
    own = _without_key_bias(attention(fields, decoder, ALL_BIAS))
    cross = _without_key_bias(_cross(fields, decoder, ALL_BIAS, frames))
    return _assembled(fields, encoder, decoder, encoder_mixer, own, cross, stem)


def parse_bart(fields: ConfigFields) -> ModelShape:
    """BART, mBART, Pegasus and their like: learned or fixed positions on both sides."""
    hidden = fields.integer("hidden_size")
    encoder, decoder = _side(fields, "encoder", hidden), _side(fields, "decoder", hidden)
    positions = fields.integer("max_position_embeddings")
    stem = [
        embedding("model.encoder.embed_positions", positions + 2, hidden),
        embedding("model.decoder.embed_positions", positions + 2, hidden),
        vector("model.layernorm_embedding", hidden, copies=4),
    ]
    own = attention(fields, decoder, ALL_BIAS)
    cross = _cross(fields, decoder, ALL_BIAS, positions)
    shape = _assembled(fields, encoder, decoder, attention(fields, encoder, ALL_BIAS), own, cross, stem)
    return replace(shape, outside=tuple(w for w in shape.outside if w.path != "final_norms"))


def _assembled(
    fields: ConfigFields,
    encoder: Dimensions,
    decoder: Dimensions,
    encoder_mixer: Part,
    own: Part,
    cross: Part,
    stem: list[Weight],
) -> ModelShape:
    """Encoder layers as weights outside, decoder layers with both caches."""
    hidden = decoder.hidden
    encoder_layer = [
        *encoder_mixer.weights,
        *mlp_weights("encoder.mlp", hidden, encoder.intermediate, gated=False, bias=True),
        vector("encoder.norms", hidden, copies=4),
    ]
    layer = Layer(
        caches=(*own.caches, *cross.caches),
        weights=(
            *own.weights,
            *cross.weights,
            *mlp_weights("mlp", hidden, decoder.intermediate, gated=False, bias=True),
            vector("norms", hidden, copies=6),
        ),
    )
    outside = [
        embedding("model.decoder.embed_tokens", decoder.vocab, hidden),
        *stem,
        *(encoder_layer * encoder.num_layers),
        vector("final_norms", hidden, copies=4),
    ]
    if not fields.flag("tie_word_embeddings", True):
        outside += head("proj_out", decoder.vocab, hidden)
    return ModelShape(
        layers=(layer,) * decoder.num_layers,
        outside=tuple(outside),
        hidden_size=hidden,
        vocab_size=decoder.vocab,
        max_position_embeddings=decoder.positions,
        num_attention_heads=decoder.heads,
        widest_activation=2 * max(encoder.intermediate, decoder.intermediate),
    )


def parse_t5(fields: ConfigFields) -> ModelShape:
    """T5: relative positions, no biases, a head width of its own."""
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_heads")
    dims = Dimensions(
        num_layers=fields.integer("num_layers", most=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=fields.integer("d_kv"),
        intermediate=fields.integer("d_ff"),
        vocab=fields.integer("vocab_size"),
        positions=fields.integer_or("n_positions", T5_INPUT_TOKENS, least=1),
    )
    gated = (fields.text("feed_forward_proj") or "").startswith("gated")
    mlp = mlp_weights("DenseReluDense", hidden, dims.intermediate, gated=gated)
    own, cross = attention(fields, dims, NO_BIAS), _cross(fields, dims, NO_BIAS, dims.positions)
    encoder_layer = [*own.weights, *mlp, vector("norms", hidden, copies=2)]
    buckets = fields.integer_or("relative_attention_num_buckets", 32, least=1)
    outside = [
        embedding("shared", dims.vocab, hidden),
        *(encoder_layer * dims.num_layers),
        vector("relative_attention_bias", buckets * heads, copies=2),
        vector("final_layer_norms", hidden, copies=2),
    ]
    if not fields.flag("tie_word_embeddings", True):
        outside += head("lm_head", dims.vocab, hidden)
    layer = Layer(
        caches=(*own.caches, *cross.caches),
        weights=(*own.weights, *cross.weights, *mlp, vector("norms", hidden, copies=3)),
    )
    note = f"Cross-attention is sized for an input of {dims.positions} tokens."
    return ModelShape(
        layers=(layer,) * fields.integer_or("num_decoder_layers", dims.num_layers, least=1, most=4096),
        outside=tuple(outside),
        hidden_size=hidden,
        vocab_size=dims.vocab,
        max_position_embeddings=dims.positions,
        num_attention_heads=heads,
        widest_activation=3 * dims.intermediate,
        notes=(note,),
    )
