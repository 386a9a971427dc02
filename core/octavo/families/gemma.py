"""Gemma 3n and Gemma 4: layers that share keys and values, and a shape for each kind of layer.

The last `num_kv_shared_layers` store nothing: they read what an earlier layer of their kind stored.
Gemma 4's full layers have their own head width and KV heads; with `attention_k_eq_v` they have no
value map, but both keys and values are cached all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families.attention import AttentionTraits, attention
from octavo.families.decoder import DecoderTraits, assemble
from octavo.families.feed_forward import ExpertTraits, dense, expert_weights
from octavo.families.parts import Part, embedding, linear, vector
from octavo.families.windows import Reach, read_reaches
from octavo.layers import Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions

MOST_STREAMS = 64
"""Parallel residual streams of Gemma 3n (it has 4)."""
HEAD_NORM = AttentionTraits(qk_norm="head")
FOUR_NORMS = DecoderTraits(norms_per_layer=4)


def _first_shared(fields: ConfigFields, num_layers: int) -> int:
    return num_layers - min(num_layers - 1, fields.integer_or("num_kv_shared_layers", 0))


def _per_layer_inputs(fields: ConfigFields, dims: Dimensions) -> tuple[list[Weight], list[Weight]]:
    """Per-layer embeddings: the weights inside each layer, and the table and projection outside."""
    width = fields.integer_or("hidden_size_per_layer_input", 0)
    if not width:
        return [], []
    inside = [
        *linear("per_layer_input_gate", width, dims.hidden),
        *linear("per_layer_projection", dims.hidden, width),
        vector("post_per_layer_input_norm", dims.hidden),
    ]
    rows = fields.integer_or("vocab_size_per_layer_input", dims.vocab, least=1)
    outside = [
        embedding("model.embed_tokens_per_layer", rows, dims.num_layers * width),
        *linear("model.per_layer_model_projection", dims.num_layers * width, dims.hidden),
        vector("model.per_layer_projection_norm", width),
    ]
    return inside, outside


def parse_gemma3n(fields: ConfigFields) -> ModelShape:
    widths = _widths(fields, fields.num_layers())
    scalar = ConfigFields({**fields.values, "intermediate_size": max(widths)}, fields.defaults, fields.where)
    dims = read_dimensions(scalar)
    reaches = read_reaches(fields, dims.num_layers, "pattern", period=5)
    first_shared = _first_shared(fields, dims.num_layers)
    mixers = [
        attention(fields, dims, HEAD_NORM, reach=reach, shares_cache=index >= first_shared)
        for index, reach in enumerate(reaches)
    ]
    inside, outside = _per_layer_inputs(fields, dims)
    inside = [*inside, *_laurel_and_altup(fields, dims)]
    mlps = [_with(dense(dims.hidden, width), inside) for width in widths]
    streams = fields.integer_or("altup_num_inputs", 1, least=1, most=MOST_STREAMS) - 1
    altup = linear("model.altup_projections", dims.hidden, dims.hidden) * (2 * streams)
    return assemble(fields, dims, FOUR_NORMS, mixers, mlps, extra_outside=[*outside, *altup])


def _widths(fields: ConfigFields, num_layers: int) -> Sequence[int]:
    """One MLP width for each layer, or one for all."""
    if not isinstance(fields.raw("intermediate_size"), list | tuple):
        return [fields.integer("intermediate_size")] * num_layers
    widths = fields.integers("intermediate_size", least=1) or ()
    if len(widths) < num_layers:
        raise InvalidConfig(f"{fields.where}intermediate_size: must have one width for each layer")
    return widths[:num_layers]


def _laurel_and_altup(fields: ConfigFields, dims: Dimensions) -> list[Weight]:
    """The low-rank residual and the alternating updates of Gemma 3n."""
    rank, streams = fields.integer("laurel_rank"), fields.integer("altup_num_inputs")
    return [
        *linear("laurel.linear_left", rank, dims.hidden),
        *linear("laurel.linear_right", dims.hidden, rank),
        vector("laurel.post_laurel_norm", dims.hidden),
        vector("altup.correct_output_scale", dims.hidden),
        vector("altup.coefs", streams * streams * (streams + 1)),
        vector("altup.modality_router", dims.hidden * streams),
        vector("altup.router_norm", dims.hidden),
    ]


def _with(part: Part, weights: Sequence[Weight]) -> Part:
    return replace(part, weights=(*part.weights, *weights))


def parse_gemma4(fields: ConfigFields) -> ModelShape:
    dims = read_dimensions(fields)
    reaches = list(read_reaches(fields, dims.num_layers, "pattern", period=6))
    reaches[-1] = Reach()
    first_shared = _first_shared(fields, dims.num_layers)
    mixers = [
        _gemma4_attention(fields, dims, reach, shares_cache=index >= first_shared)
        for index, reach in enumerate(reaches)
    ]
    inside, outside = _per_layer_inputs(fields, dims)
    double = fields.flag("use_double_wide_mlp")
    block = _gemma4_experts(fields, dims)
    mlps = [
        _with(
            dense(dims.hidden, dims.intermediate * (2 if double and index >= first_shared else 1)),
            [*inside, *block],
        )
        for index in range(dims.num_layers)
    ]
    return assemble(fields, dims, FOUR_NORMS, mixers, mlps, extra_outside=outside)


def _gemma4_attention(fields: ConfigFields, dims: Dimensions, reach: Reach, *, shares_cache: bool) -> Part:
    if reach.window is not None:
        return attention(fields, dims, HEAD_NORM, reach=reach, shares_cache=shares_cache)
    keys_are_values = fields.flag("attention_k_eq_v")
    kv_heads = fields.optional_integer("num_global_key_value_heads") if keys_are_values else None
    own = replace(
        dims,
        head_dim=fields.integer_or("global_head_dim", dims.head_dim, least=1),
        kv_heads=kv_heads or dims.kv_heads,
    )
    part = attention(fields, own, HEAD_NORM, shares_cache=shares_cache)
    if not keys_are_values:
        return part
    kept = tuple(weight for weight in part.weights if not weight.path.startswith("self_attn.v_proj"))
    return replace(part, weights=kept)


def _gemma4_experts(fields: ConfigFields, dims: Dimensions) -> list[Weight]:
    """Experts beside the dense MLP, with three norms of their own."""
    if not fields.flag("enable_moe_block"):
        return []
    count = fields.integer("num_experts")
    width = fields.optional_integer("moe_intermediate_size") or fields.integer("expert_intermediate_size")
    return [
        Weight(path="router.proj", outputs=count, inputs=dims.hidden, role="router", pieces=1),
        vector("router.scales", dims.hidden + count),
        *expert_weights(dims.hidden, width, count, ExpertTraits()),
        vector("expert_norms", dims.hidden, copies=3),
    ]
