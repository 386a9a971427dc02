"""Decoders from before the field agreed on names: multi-query switches, nested attention settings.

Source: the model classes of `transformers` and, for Qwen 1, ChatGLM and Phi-3-small, the modelling
code in their repositories.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families.attention import AttentionTraits, attention
from octavo.families.decoder import DecoderTraits, assemble
from octavo.families.feed_forward import ExpertTraits, dense, expert_weights
from octavo.families.parts import Part, linear, vector
from octavo.families.traits import ALL_BIAS, NO_BIAS
from octavo.families.windows import FULL, Reach
from octavo.model_shape import Dimensions, ModelShape, read_dimensions


def _equal_layers(
    fields: ConfigFields, dims: Dimensions, traits: DecoderTraits, *, mlp_bias: bool = False
) -> ModelShape:
    mixer = attention(fields, dims, traits.attention)
    mlp = dense(dims.hidden, dims.intermediate, gated=traits.gated, bias=mlp_bias)
    return assemble(fields, dims, traits, [mixer] * dims.num_layers, [mlp] * dims.num_layers)


def parse_falcon(fields: ConfigFields) -> ModelShape:
    """`num_kv_heads` counts only in the new architecture; before, `multi_query` meant one head.

    The original file of Falcon-40B has the new architecture and no switch for it: only `n_head_kv` tells.
    """
    original_40b = fields.values.get("n_head_kv") is not None
    new = fields.flag("new_decoder_architecture") or original_40b
    kv_heads = (
        None if new else (1 if fields.flag("multi_query", True) else fields.integer("num_attention_heads"))
    )
    bias = fields.flag("bias")
    norms = fields.integer_or("num_ln_in_parallel_attn", 2 if new else 1)
    if not fields.flag("parallel_attn", True):
        norms = 2
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=bias, output_bias=bias),
        gated=False,
        norms_per_layer=norms,
        norm_vectors=2,
    )
    return _equal_layers(fields, read_dimensions(fields, kv_heads=kv_heads), traits, mlp_bias=bias)


def parse_gpt_bigcode(fields: ConfigFields) -> ModelShape:
    kv_heads = 1 if fields.flag("multi_query", True) else None
    traits = DecoderTraits(attention=ALL_BIAS, gated=False, norm_vectors=2, learned_positions=0)
    return _equal_layers(fields, read_dimensions(fields, kv_heads=kv_heads), traits, mlp_bias=True)


def parse_opt(fields: ConfigFields) -> ModelShape:
    dims = read_dimensions(fields)
    bias = fields.flag("enable_bias", True)
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=bias, output_bias=bias),
        gated=False,
        norm_vectors=2 if fields.flag("layer_norm_elementwise_affine", True) else 0,
    )
    mixer = attention(fields, dims, traits.attention)
    mlp = dense(dims.hidden, dims.intermediate, gated=False, bias=bias)
    return _with_opt_embeddings(
        fields, dims, assemble(fields, dims, traits, [mixer] * dims.num_layers, [mlp] * dims.num_layers)
    )


def _with_opt_embeddings(fields: ConfigFields, dims: Dimensions, shape: ModelShape) -> ModelShape:
    """OPT's embedding may be narrower than its layers, and its last norm may be missing."""
    width = fields.integer_or("word_embed_proj_dim", dims.hidden, least=1)
    outside = [weight for weight in shape.outside if weight.role == "vector"]
    if not fields.flag("do_layer_norm_before", True):
        outside = []
    tables = [
        replace(weight, inputs=width) for weight in shape.outside if weight.role in ("embedding", "head")
    ]
    positions = linear("model.embed_positions", dims.positions + 2, dims.hidden, role="embedding")
    projections = []
    if width != dims.hidden:
        projections = [
            *linear("model.project_in", dims.hidden, width),
            *linear("model.project_out", width, dims.hidden),
        ]
    return replace(shape, outside=(*tables, *positions, *projections, *outside))


def parse_mpt(fields: ConfigFields) -> ModelShape:
    """KV heads and their kind are nested in `attn_config`."""
    nested = fields.nested("attn_config")
    kv_heads = None
    if nested is not None:
        if nested.text("attn_type") == "multiquery_attention":
            kv_heads = 1
        kv_heads = nested.optional_integer("kv_n_heads") or kv_heads
    dims = read_dimensions(fields, kv_heads=kv_heads)
    dims = replace(dims, intermediate=int(fields.number("expansion_ratio", 4) * dims.hidden))
    bias = not fields.flag("no_bias", True)
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=bias, output_bias=bias), gated=False, norm_vectors=1 + bias
    )
    return _equal_layers(fields, dims, traits, mlp_bias=bias)


def parse_gpt_neo(fields: ConfigFields) -> ModelShape:
    """Global and local layers by `attention_types`; biases on the output only."""
    dims = read_dimensions(fields)
    window = fields.integer_or("window_size", 256, least=1)
    kinds = _gpt_neo_kinds(fields, dims.num_layers)
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=False, output_bias=True),
        gated=False,
        norm_vectors=2,
        learned_positions=0,
    )
    mixers = [
        attention(fields, dims, traits.attention, reach=Reach(window=window) if kind == "local" else FULL)
        for kind in kinds
    ]
    mlp = dense(dims.hidden, dims.intermediate, gated=False, bias=True)
    return assemble(fields, dims, traits, mixers, [mlp] * dims.num_layers)


def _gpt_neo_kinds(fields: ConfigFields, num_layers: int) -> list[object]:
    """`[[["global", "local"], 12]]`: the pair, twelve times."""
    kinds: list[object] = []
    for entry in fields.sequence("attention_types") or ([["global", "local"], num_layers],):
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], list | tuple):
            raise InvalidConfig(f"{fields.where}attention_types: must be [[kinds, repeats], ...]")
        repeats = entry[1] if isinstance(entry[1], int) else 0
        kinds += list(entry[0]) * max(0, min(repeats, num_layers))
    if len(kinds) < num_layers:
        raise InvalidConfig(f"{fields.where}attention_types: describes {len(kinds)} of {num_layers} layers")
    return kinds[:num_layers]


def parse_qwen1(fields: ConfigFields) -> ModelShape:
    """Qwen 1 halves `intermediate_size`: the figure counts both branches of the gate."""
    dims = read_dimensions(fields)
    dims = replace(dims, intermediate=dims.intermediate // 2)
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=True, output_bias=not fields.flag("no_bias", True))
    )
    return _equal_layers(fields, dims, traits)


def parse_chatglm(fields: ConfigFields) -> ModelShape:
    """`multi_query_attention` with a group count is grouped-query attention, not one head."""
    multi_query = fields.flag("multi_query_attention")
    kv_heads = fields.integer("multi_query_group_num") if multi_query else None
    dims = read_dimensions(fields, kv_heads=kv_heads)
    if fields.has("inner_hidden_size"):
        return _chatglm1(fields, dims)
    bias = fields.flag("add_bias_linear")
    traits = DecoderTraits(
        attention=AttentionTraits(qkv_bias=bias or fields.flag("add_qkv_bias"), output_bias=bias),
        norm_vectors=1 if fields.flag("rmsnorm", True) else 2,
    )
    return _equal_layers(fields, dims, traits, mlp_bias=bias)


def _chatglm1(fields: ConfigFields, dims: Dimensions) -> ModelShape:
    """The first ChatGLM: biases everywhere, LayerNorm, an MLP without a gate, a tied head."""
    dims = replace(dims, intermediate=fields.integer("inner_hidden_size"))
    tied = ConfigFields({"tie_word_embeddings": True, **fields.values}, fields.defaults, fields.where)
    traits = DecoderTraits(attention=ALL_BIAS, gated=False, norm_vectors=2)
    return _equal_layers(tied, dims, traits, mlp_bias=True)


def parse_phi3small(fields: ConfigFields) -> ModelShape:
    """Block-sparse attention reads less, and stores all keys and values the same."""
    traits = DecoderTraits(attention=ALL_BIAS, norm_vectors=2)
    return _equal_layers(fields, read_dimensions(fields), traits, mlp_bias=True)


def parse_stablelm(fields: ConfigFields) -> ModelShape:
    dims = read_dimensions(fields)
    parallel = fields.flag("use_parallel_residual")
    traits = DecoderTraits(
        attention=AttentionTraits(
            qkv_bias="use_qkv_bias", output_bias=False, qk_norm="each_head", qk_norm_switch="qk_layernorm"
        ),
        norms_per_layer=1 if parallel else 2,
        norm_vectors=2,
    )
    return _equal_layers(fields, dims, traits)


def parse_nanochat(fields: ConfigFields) -> ModelShape:
    traits = DecoderTraits(gated=False, norm_vectors=0)
    return _equal_layers(fields, read_dimensions(fields), traits)


def parse_bitnet(fields: ConfigFields) -> ModelShape:
    """Two more norms in each layer: before the attention's output map and before the MLP's."""
    shape = _equal_layers(fields, read_dimensions(fields), DecoderTraits())
    dims = read_dimensions(fields)
    sub_norms = (vector("sub_norms", dims.hidden + dims.intermediate),)
    layers = tuple(replace(layer, weights=layer.weights + sub_norms) for layer in shape.layers)
    return replace(shape, layers=layers)


def parse_dbrx(fields: ConfigFields) -> ModelShape:
    """Experts and KV heads are nested in `ffn_config` and `attn_config`."""
    nested_attention, ffn = fields.nested("attn_config"), fields.nested("ffn_config")
    kv_heads = nested_attention.optional_integer("kv_n_heads") if nested_attention else None
    dims = read_dimensions(fields, kv_heads=kv_heads or 1)
    width = ffn.integer_or("ffn_hidden_size", 3584, least=1) if ffn else 3584
    count = ffn.integer_or("moe_num_experts", 4, least=1) if ffn else 4
    top_k = ffn.integer_or("moe_top_k", 1, least=1) if ffn else 1
    router = linear("mlp.gate", count, dims.hidden, role="router")
    block = expert_weights(dims.hidden, width, count, ExpertTraits())
    mlp = Part(weights=(*router, *block), width=3 * width * top_k)
    traits = DecoderTraits(attention=NO_BIAS)
    mixer = attention(fields, dims, traits.attention)
    return assemble(fields, dims, traits, [mixer] * dims.num_layers, [mlp] * dims.num_layers)
