"""Models whose layers are each described in the file: heads, widths and gaps layer by layer.

Nemotron-NAS (a pruned Llama: layers without attention or without an MLP), OpenELM (heads and widths
scaled over the depth), DeciLM (KV heads listed), Step (more query heads in sliding layers), Mllama
(cross-attention layers between the others).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families.attention import AttentionTraits, attention
from octavo.families.decoder import LLAMA, DecoderTraits, assemble
from octavo.families.feed_forward import (
    ExpertTraits,
    dense,
    experts,
    sparse_layer_flags,
)
from octavo.families.parts import NOTHING, Part, linear, vector
from octavo.families.traits import NO_BIAS
from octavo.families.windows import read_reaches
from octavo.layers import CrossCache
from octavo.model_shape import Dimensions, ModelShape, read_dimensions
from octavo.units import round_up


def parse_nemotron_nas(fields: ConfigFields) -> ModelShape:
    """`block_configs`: `n_heads_in_group` counts query heads per KV head, not KV heads."""
    dims = read_dimensions(fields)
    blocks = fields.sequence("block_configs")
    if blocks is None or len(blocks) < dims.num_layers:
        raise InvalidConfig(
            f"{fields.where}block_configs: must describe each of the {dims.num_layers} layers"
        )
    scopes = [_block(fields, index, block) for index, block in enumerate(blocks[: dims.num_layers])]
    mixers = [_nas_attention(scope.nested("attention"), dims) for scope in scopes]
    mlps = [_nas_mlp(scope.nested("ffn"), dims) for scope in scopes]
    return assemble(fields, dims, DecoderTraits(norms_per_layer=0), mixers, mlps)


def _block(fields: ConfigFields, index: int, block: object) -> ConfigFields:
    if not isinstance(block, Mapping):
        raise InvalidConfig(f"{fields.where}block_configs[{index}]: must be an object")
    return ConfigFields(block, {}, f"{fields.where}block_configs[{index}].")


def _nas_attention(scope: ConfigFields | None, dims: Dimensions) -> Part:
    if scope is None or scope.flag("no_op"):
        return NOTHING
    norm = vector("input_layernorm", dims.hidden)
    if scope.flag("replace_with_linear"):
        return Part(weights=(norm, *linear("self_attn.linear_attn", dims.hidden, dims.hidden)))
    group = scope.integer("n_heads_in_group")
    own = replace(dims, kv_heads=max(1, dims.heads // group))
    part = attention(scope, own, NO_BIAS)
    return replace(part, weights=(norm, *part.weights))


def _nas_mlp(scope: ConfigFields | None, dims: Dimensions) -> Part:
    if scope is None or scope.flag("no_op"):
        return NOTHING
    norm = vector("post_attention_layernorm", dims.hidden)
    if scope.flag("replace_with_linear"):
        return Part(weights=(norm, *linear("mlp.linear_mlp", dims.hidden, dims.hidden)))
    multiplier = scope.number("ffn_mult", 0.0)
    width = scope.optional_integer("intermediate_size") or round_up(
        int(2 * multiplier * dims.hidden / 3), 256
    )
    part = dense(dims.hidden, width)
    return replace(part, weights=(norm, *part.weights))


def parse_openelm(fields: ConfigFields) -> ModelShape:
    """Query heads, KV heads and MLP widths are listed for each layer."""
    num_layers = fields.num_layers()
    query, kv = (
        _per_layer(fields, "num_query_heads", num_layers),
        _per_layer(fields, "num_kv_heads", num_layers),
    )
    hidden, head_dim = fields.integer("hidden_size"), fields.integer("head_dim")
    dims = Dimensions(
        num_layers=num_layers,
        hidden=hidden,
        heads=max(query),
        kv_heads=max(kv),
        head_dim=head_dim,
        intermediate=4 * hidden,
        vocab=fields.integer("vocab_size"),
        positions=fields.integer_or("max_position_embeddings", 0),
    )
    normed = AttentionTraits(
        qkv_bias=False, output_bias=False, qk_norm="head", qk_norm_switch="normalize_qk_projections"
    )
    mixers = [
        attention(fields, replace(dims, heads=heads, kv_heads=kv_heads), normed)
        for heads, kv_heads in zip(query, kv, strict=True)
    ]
    return assemble(fields, dims, LLAMA, mixers, _openelm_mlps(fields, dims))


def _per_layer(fields: ConfigFields, name: str, num_layers: int) -> Sequence[int]:
    listed = fields.integers(name, least=1)
    if listed is None or len(listed) < num_layers:
        raise InvalidConfig(f"{fields.where}{name}: must have one entry for each of the {num_layers} layers")
    return listed[:num_layers]


def _openelm_mlps(fields: ConfigFields, dims: Dimensions) -> list[Part]:
    multipliers = fields.sequence("ffn_multipliers") or ()
    divisor = fields.integer_or("ffn_dim_divisor", 256, least=1)
    if len(multipliers) < dims.num_layers:
        raise InvalidConfig(f"{fields.where}ffn_multipliers: must have one entry for each layer")
    mlps = []
    for index in range(dims.num_layers):
        entry = ConfigFields({"ffn_multiplier": multipliers[index]}, {}, fields.where)
        width = int(entry.number("ffn_multiplier", 0.0) * dims.hidden)
        mlps.append(dense(dims.hidden, _made_divisible(width, divisor)))
    return mlps


def _made_divisible(width: int, divisor: int) -> int:
    """The nearest multiple, never more than a tenth below, as OpenELM rounds its widths."""
    rounded = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * width else rounded


def parse_decilm(fields: ConfigFields) -> ModelShape:
    """DeciLM: `num_key_value_heads_per_layer`, else as Llama or as Nemotron-NAS."""
    if fields.raw("block_configs") is not None:
        return parse_nemotron_nas(fields)
    dims = read_dimensions(fields)
    listed = fields.integers("num_key_value_heads_per_layer", least=1)
    if listed is None or len(listed) < dims.num_layers:
        raise InvalidConfig(
            f"{fields.where}num_key_value_heads_per_layer: must have one entry for each layer"
        )
    mixers = [
        attention(fields, replace(dims, kv_heads=heads), NO_BIAS) for heads in listed[: dims.num_layers]
    ]
    mlp = dense(dims.hidden, dims.intermediate)
    return assemble(fields, dims, LLAMA, mixers, [mlp] * dims.num_layers)


def parse_step(fields: ConfigFields) -> ModelShape:
    """Step 3.5 and 3.7: a gate per head, experts after the first layers, wider sliding layers."""
    dims = read_dimensions(fields)
    reaches = read_reaches(fields, dims.num_layers, "none")
    nested = fields.nested("attention_other_setting")
    other_heads = nested.optional_integer("num_attention_heads") if nested is not None else None
    sliding_heads = fields.optional_integer("num_sliding_attention_heads") or other_heads or dims.heads
    traits = AttentionTraits(qk_norm="head", gate="per_head")
    mixers = [
        attention(
            fields, replace(dims, heads=sliding_heads if reach.window else dims.heads), traits, reach=reach
        )
        for reach in reaches
    ]
    moe = ExpertTraits(sparse_layers="after_dense", shared="width", shared_field="share_expert_dim")
    plain, sparse = dense(dims.hidden, dims.intermediate), experts(fields, dims, moe)
    flags = _step_sparse_layers(fields, dims.num_layers, moe)
    mlps = [sparse if flag else plain for flag in flags]
    note = "Step's file may omit fields that its class fills; weights are those of the class."
    return assemble(fields, dims, DecoderTraits(confidence="medium", notes=(note,)), mixers, mlps)


def _step_sparse_layers(fields: ConfigFields, num_layers: int, moe: ExpertTraits) -> Sequence[bool]:
    """`moe_layers_enum` lists the sparse layers, as text or as numbers."""
    listed = fields.raw("moe_layers_enum")
    if listed is None:
        return sparse_layer_flags(fields, num_layers, moe)
    items = listed.split(",") if isinstance(listed, str) else fields.sequence("moe_layers_enum") or ()
    sparse = {str(item).strip() for item in items}
    return [str(index) in sparse for index in range(num_layers)]


def parse_mllama(fields: ConfigFields) -> ModelShape:
    """Llama 3.2 Vision: cross-attention layers hold image tokens, not text tokens."""
    dims = read_dimensions(fields)
    crossing = fields.integers("cross_attention_layers") or tuple(range(3, dims.num_layers, 5))
    own, cross = attention(fields, dims, NO_BIAS), _mllama_cross(fields, dims)
    mlp = dense(dims.hidden, dims.intermediate)
    mixers = [cross if index in crossing else own for index in range(dims.num_layers)]
    shape = assemble(fields, dims, LLAMA, mixers, [mlp] * dims.num_layers)
    embedding_rows = dims.vocab + MLLAMA_EXTRA_ROWS
    outside = tuple(
        replace(weight, outputs=embedding_rows) if weight.role == "embedding" else weight
        for weight in shape.outside
    )
    return replace(shape, outside=outside)


MLLAMA_EXTRA_ROWS = 8
"""Special tokens that only the embedding of Llama 3.2 Vision has."""
MLLAMA_IMAGE_TOKENS = 4 * 1601
"""Four tiles of 560 × 560 in patches of 14, each with a class token."""


def _mllama_cross(fields: ConfigFields, dims: Dimensions) -> Part:
    part = attention(fields, dims, AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="head"))
    cache = CrossCache(num_kv_heads=dims.kv_heads, head_dim=dims.head_dim, num_tokens=MLLAMA_IMAGE_TOKENS)
    gates = vector("cross_attn_gates", 2)
    return Part(weights=(*part.weights, gates), caches=(cache,), width=part.width)
