"""Layers that share weights or keys and values with others.

Zamba2 runs one or two transformer blocks again and again between its Mamba-2 layers: the weights are
there once (with a small adapter for each use), the keys and values once for each use. Hunyuan-Large
lets every second layer read the keys and values of the one before (cross-layer attention).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families import recurrent
from octavo.families.attention import AttentionTraits, attention
from octavo.families.decoder import DecoderTraits, assemble, mlps_of
from octavo.families.feed_forward import ExpertTraits
from octavo.families.parts import NOTHING, Part, linear, mlp_weights, vector
from octavo.families.traits import NO_BIAS
from octavo.families.windows import Reach, layer_types
from octavo.layers import Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions

ZAMBA2_KINDS = ("mamba",) + (("mamba",) * 5 + ("hybrid",)) * 7 + ("mamba",) * 4 + ("hybrid",)
"""The class's own order of layers, up to the places that follow."""
ZAMBA2_DEFAULT = (*ZAMBA2_KINDS, *("mamba",) * 3, "hybrid", *("mamba",) * 2)


def parse_zamba2(fields: ConfigFields) -> ModelShape:
    listed = fields.sequence("layers_block_type") or ZAMBA2_DEFAULT
    dims = _zamba2_dimensions(fields, num_layers=len(listed))
    state = _zamba2_mamba(fields, dims.hidden)
    using = _with_shared_attention(fields, dims, state)
    mixers = [using if kind == "hybrid" else state for kind in listed]
    uses = sum(kind == "hybrid" for kind in listed)
    outside = _shared_blocks(fields, dims) if uses else []
    traits = DecoderTraits(norms_per_layer=1)
    return assemble(fields, dims, traits, mixers, [NOTHING] * dims.num_layers, extra_outside=outside)


def _zamba2_dimensions(fields: ConfigFields, *, num_layers: int) -> Dimensions:
    """Attention works on the layer's input beside the embedding: twice the width."""
    if num_layers > 4096:
        raise InvalidConfig(f"{fields.where}layers_block_type: has more layers than any model")
    dims = read_dimensions(fields, num_layers=num_layers)
    return replace(dims, head_dim=max(1, 2 * dims.hidden // dims.heads))


def _zamba2_mamba(fields: ConfigFields, hidden: int) -> Part:
    return recurrent.mamba2(
        fields,
        hidden,
        inner=int(fields.number("mamba_expand", 2) * hidden),
        heads=fields.integer("n_mamba_heads"),
        state=fields.integer("mamba_d_state"),
        groups=fields.integer("mamba_ngroups"),
        kernel=fields.integer("mamba_d_conv"),
        conv_bias=True,
        bias=fields.flag("add_bias_linear"),
    )


def _with_shared_attention(fields: ConfigFields, dims: Dimensions, state: Part) -> Part:
    """One use of a shared block: its cache, its adapters, and the map behind it."""
    rank = fields.integer("adapter_rank")
    adapters = [
        *linear("adapters.gate_up.0", rank, dims.hidden),
        *linear("adapters.gate_up.1", 2 * dims.intermediate, rank),
    ]
    if fields.flag("use_shared_attention_adapter"):
        one = [*linear("adapters.attention.0", rank, 2 * dims.hidden)]
        one += linear("adapters.attention.1", 2 * dims.hidden, rank)
        adapters += one * 3
    caches = attention(fields, dims, NO_BIAS).caches
    weights = (*state.weights, *linear("linear", dims.hidden, dims.hidden), *adapters)
    return Part(weights=weights, caches=(*caches, *state.caches), width=state.width + 3 * dims.intermediate)


def _shared_blocks(fields: ConfigFields, dims: Dimensions) -> list[Weight]:
    """The transformer blocks themselves, with their input twice as wide as their output."""
    wide, heads, head_dim = 2 * dims.hidden, dims.heads, dims.head_dim
    bias = fields.flag("add_bias_linear")
    block = [
        *linear("shared.self_attn.q_proj", heads * head_dim, wide),
        *linear("shared.self_attn.k_proj", dims.kv_heads * head_dim, wide, pieces=dims.kv_heads),
        *linear("shared.self_attn.v_proj", dims.kv_heads * head_dim, wide, pieces=dims.kv_heads),
        *linear("shared.self_attn.o_proj", dims.hidden, heads * head_dim),
        *mlp_weights("shared.feed_forward", dims.hidden, dims.intermediate, bias=bias),
        vector("shared.norms", wide + dims.hidden),
    ]
    return block * fields.integer_or("num_mem_blocks", 1, least=1, most=64)


def parse_hunyuan(fields: ConfigFields, traits: DecoderTraits) -> ModelShape:
    """Hunyuan: with `use_cla`, the first of each few layers stores for the others."""
    dims = read_dimensions(fields)
    share = fields.integer_or("cla_share_factor", 1, least=1) if fields.flag("use_cla") else 1
    mixers = [
        attention(fields, dims, traits.attention, shares_cache=index % share != 0)
        for index in range(dims.num_layers)
    ]
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def parse_mimo(fields: ConfigFields) -> ModelShape:
    """MiMo-V2-Flash: values narrower than keys, twice the KV heads and sinks in sliding layers."""
    dims = read_dimensions(fields)
    sliding = _mimo_sliding(fields, dims.num_layers)
    own = AttentionTraits(output_bias=False)
    window = fields.optional_integer("sliding_window_size")
    reach = Reach(window=fields.optional_integer("sliding_window") if window is None else window + 1)
    local_dims = replace(
        dims, kv_heads=fields.integer_or("swa_num_key_value_heads", 2 * dims.kv_heads, least=1)
    )
    value_dim = fields.integer("v_head_dim")
    full = attention(fields, dims, own, value_dim=value_dim)
    local = attention(fields, local_dims, replace(own, sinks=True), reach=reach, value_dim=value_dim)
    traits = DecoderTraits(mlp_bias=False, experts=ExpertTraits(sparse_layers="after_dense"))
    mixers = [local if slides else full for slides in sliding]
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def _mimo_sliding(fields: ConfigFields, num_layers: int) -> Sequence[bool]:
    """`layer_types`, or the published `hybrid_layer_pattern` (1 slides), or every layer but each sixth."""
    kinds = layer_types(fields, num_layers)
    if kinds is not None:
        return [kind == "sliding_attention" for kind in kinds]
    pattern = fields.integers("hybrid_layer_pattern")
    if pattern is not None and len(pattern) >= num_layers:
        return [bool(flag) for flag in pattern[:num_layers]]
    return [index != 0 and (index + 1) % 6 != 0 for index in range(num_layers)]
