"""Models whose layers are of different kinds: attention here, a recurrent state there.

Which layer is what comes from a list (`layer_types`, `layers_block_type`), indices (Bamba, LFM2),
or a period and an offset (Jamba).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families import recurrent
from octavo.families.attention import AttentionTraits, attention
from octavo.families.decoder import DecoderTraits, assemble, mlps_of
from octavo.families.feed_forward import ExpertTraits, dense, num_experts
from octavo.families.latent import latent_attention
from octavo.families.parts import NOTHING, Part, vector
from octavo.families.traits import NO_BIAS
from octavo.families.windows import Reach, layer_types
from octavo.model_shape import ModelShape, read_dimensions
from octavo.units import round_up

ATTENTION_KINDS = frozenset({"attention", "full_attention"})


def _periodic(num_layers: int, interval: int) -> tuple[str, ...]:
    return tuple(
        "linear_attention" if (index + 1) % interval else "full_attention" for index in range(num_layers)
    )


def _mixers(
    kinds: Sequence[str], on_attention: Callable[[], Part], on_state: Callable[[], Part]
) -> list[Part]:
    """One mixer for each kind; each of the two is built once."""
    attending = on_attention() if any(kind in ATTENTION_KINDS for kind in kinds) else NOTHING
    carrying = on_state() if any(kind not in ATTENTION_KINDS for kind in kinds) else NOTHING
    return [attending if kind in ATTENTION_KINDS else carrying for kind in kinds]


def parse_qwen3_next(fields: ConfigFields) -> ModelShape:
    """Qwen3-Next and Qwen3.5: gated DeltaNet, every fourth layer gated attention."""
    dims = read_dimensions(fields)
    kinds = layer_types(fields, dims.num_layers) or _periodic(
        dims.num_layers, fields.integer_or("full_attention_interval", 4, least=1)
    )
    gated = AttentionTraits(qk_norm="head", gate="in_query")
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims, gated),
        lambda: recurrent.gated_delta_net(fields, dims.hidden),
    )
    traits = DecoderTraits(
        mlp_bias=False,
        experts=ExpertTraits(
            sparse_layers="step",
            shared="width",
            shared_field="shared_expert_intermediate_size",
            shared_gate=True,
        ),
    )
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def parse_jamba(fields: ConfigFields) -> ModelShape:
    """Mamba with attention at a period, experts at another."""
    dims = read_dimensions(fields)
    period, offset = fields.integer("attn_layer_period"), fields.integer("attn_layer_offset", least=0)
    kinds = ["attention" if index % period == offset else "mamba" for index in range(dims.num_layers)]
    mixers = _mixers(
        kinds, lambda: attention(fields, dims, NO_BIAS), lambda: _jamba_mamba(fields, dims.hidden)
    )
    traits = DecoderTraits(
        mlp_bias=False,
        experts=ExpertTraits(width_field="intermediate_size", sparse_layers="period")
        if num_experts(fields) > 1
        else None,
    )
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def _jamba_mamba(fields: ConfigFields, hidden: int) -> Part:
    return recurrent.mamba1(
        fields,
        hidden,
        inner=fields.integer("mamba_expand") * hidden,
        state=fields.integer("mamba_d_state"),
        kernel=fields.integer("mamba_d_conv"),
        rank=recurrent.step_rank(fields, "mamba_dt_rank", hidden),
        conv_bias=fields.flag("mamba_conv_bias", True),
        bias=fields.flag("mamba_proj_bias"),
        normed=True,
    )


def _named_mamba2(fields: ConfigFields, hidden: int, *, inner: int, normed: bool = True) -> Part:
    """Mamba-2 with the `mamba_*` names that Bamba, Granite and Falcon-H1 share."""
    return recurrent.mamba2(
        fields,
        hidden,
        inner=inner,
        heads=fields.integer("mamba_n_heads"),
        state=fields.integer("mamba_d_state"),
        groups=fields.integer("mamba_n_groups"),
        kernel=fields.integer("mamba_d_conv"),
        conv_bias=fields.flag("mamba_conv_bias", True),
        bias=fields.flag("mamba_proj_bias"),
        normed=normed,
    )


def parse_bamba(fields: ConfigFields) -> ModelShape:
    dims = read_dimensions(fields)
    attending = fields.integers("attn_layer_indices") or ()
    kinds = layer_types(fields, dims.num_layers, "layers_block_type") or [
        "attention" if index in attending else "mamba" for index in range(dims.num_layers)
    ]
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims),
        lambda: _named_mamba2(fields, dims.hidden, inner=fields.integer("mamba_expand") * dims.hidden),
    )
    traits = DecoderTraits()
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def parse_granite_hybrid(fields: ConfigFields) -> ModelShape:
    """Granite 4: a shared MLP in each layer, experts besides where there are any."""
    dims = read_dimensions(fields)
    kinds = layer_types(fields, dims.num_layers) or ("mamba",) * dims.num_layers
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims),
        lambda: _named_mamba2(fields, dims.hidden, inner=fields.integer("mamba_expand") * dims.hidden),
    )
    dims = replace(dims, intermediate=fields.integer("shared_intermediate_size"))
    traits = DecoderTraits(
        mlp_bias=False,
        experts=ExpertTraits(
            width_field="intermediate_size", shared="width", shared_field="shared_intermediate_size"
        ),
    )
    plain = replace(traits, dense_width_field="shared_intermediate_size")
    mlp_traits = traits if num_experts(fields) else plain
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, mlp_traits))


def parse_falcon_h1(fields: ConfigFields) -> ModelShape:
    """Attention and Mamba-2 side by side in each layer."""
    dims = read_dimensions(fields)
    inner = fields.optional_integer("mamba_d_ssm") or fields.integer("mamba_expand") * dims.hidden
    attending = attention(fields, dims)
    carrying = _named_mamba2(fields, dims.hidden, inner=inner, normed=fields.flag("mamba_rms_norm"))
    out_bias = [vector("mamba.out_proj.bias", dims.hidden)] if fields.flag("projectors_bias") else []
    both = Part(
        weights=(*attending.weights, *carrying.weights, *out_bias),
        caches=(*attending.caches, *carrying.caches),
        width=max(attending.width, carrying.width),
    )
    traits = DecoderTraits()
    return assemble(fields, dims, traits, [both] * dims.num_layers, mlps_of(fields, dims, traits))


def parse_lfm2(fields: ConfigFields) -> ModelShape:
    """LFM2: short convolutions with some attention; the dense width is rounded as its class does."""
    dims = read_dimensions(fields)
    attending = fields.integers("full_attn_idxs")
    kinds = layer_types(fields, dims.num_layers) or [
        "full_attention" if attending is None or index in attending else "conv"
        for index in range(dims.num_layers)
    ]
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims, AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="head")),
        lambda: recurrent.short_convolution(fields, dims.hidden),
    )
    plain = dense(dims.hidden, _lfm2_width(fields, dims.intermediate))
    return assemble(fields, dims, DecoderTraits(), mixers, [plain] * dims.num_layers)


def _lfm2_width(fields: ConfigFields, intermediate: int) -> int:
    """The MLP width: early files state an unadjusted `block_ff_dim`, later ones the width itself.

    The class adjusts by default, but a published file that states `intermediate_size` alone
    (LFM2-2.6B) means it as it stands: its parameters add up only so.
    """
    width = fields.optional_integer("block_ff_dim")
    if width is None and not fields.has("block_auto_adjust_ff_dim"):
        return intermediate
    width = width or intermediate
    if not fields.flag("block_auto_adjust_ff_dim"):
        return width
    width = int(fields.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    return round_up(width, fields.integer_or("block_multiple_of", 256, least=1))


def parse_lfm2_moe(fields: ConfigFields) -> ModelShape:
    dims = read_dimensions(fields)
    kinds = layer_types(fields, dims.num_layers) or ("full_attention",) * dims.num_layers
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims, AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="head")),
        lambda: recurrent.short_convolution(fields, dims.hidden),
    )
    traits = DecoderTraits(experts=ExpertTraits())
    mlps = list(mlps_of(fields, dims, traits))
    dense_layers = min(fields.integer_or("num_dense_layers", 0), dims.num_layers)
    mlps[:dense_layers] = [dense(dims.hidden, dims.intermediate)] * dense_layers
    return assemble(fields, dims, traits, mixers, mlps)


def parse_minimax(fields: ConfigFields) -> ModelShape:
    """MiniMax-01: lightning attention with some softmax attention, experts in each layer."""
    dims = read_dimensions(fields)
    kinds = layer_types(fields, dims.num_layers) or _minimax_kinds(fields, dims.num_layers)
    mixers = _mixers(
        kinds, lambda: attention(fields, dims, NO_BIAS), lambda: recurrent.lightning_attention(dims)
    )
    traits = DecoderTraits(mlp_bias=False, experts=ExpertTraits(width_field="intermediate_size"))
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def _minimax_kinds(fields: ConfigFields, num_layers: int) -> tuple[str, ...]:
    """`attn_type_list` of the original files: 1 is softmax attention, 0 lightning."""
    listed = fields.integers("attn_type_list")
    if listed is not None and len(listed) >= num_layers:
        return tuple("full_attention" if kind else "linear_attention" for kind in listed[:num_layers])
    return tuple("linear_attention" if index % 2 else "full_attention" for index in range(num_layers))


def parse_recurrent_gemma(fields: ConfigFields) -> ModelShape:
    """Griffin: two recurrent blocks, then one local attention."""
    dims = read_dimensions(fields)
    pattern = (
        fields.sequence("block_types")
        or fields.sequence("_block_types")
        or ("recurrent", "recurrent", "attention")
    )
    kinds = [
        "attention" if pattern[i % len(pattern)] == "attention" else "state" for i in range(dims.num_layers)
    ]
    window = fields.optional_integer("attention_window_size")
    traits = AttentionTraits(output_bias=True)
    mixers = _mixers(
        kinds,
        lambda: attention(fields, dims, traits, reach=Reach(window=window)),
        lambda: recurrent.gated_linear_recurrence(fields, dims),
    )
    mlp = dense(dims.hidden, dims.intermediate // 2, bias=True)
    return assemble(fields, dims, DecoderTraits(), mixers, [mlp] * dims.num_layers)


def parse_kimi_linear(fields: ConfigFields) -> ModelShape:
    """Kimi Linear: KDA, with latent attention at the listed layers (counted from one)."""
    dims = read_dimensions(fields, kv_heads=fields.integer("num_attention_heads"))
    nested = fields.nested("linear_attn_config")
    kinds = _kimi_kinds(fields, nested, dims.num_layers)
    source = nested or fields
    heads = source.integer_or("num_heads", fields.integer_or("linear_num_heads", dims.heads), least=1)
    head_dim = source.integer_or("head_dim", fields.integer_or("linear_head_dim", 128), least=1)
    kernel = source.integer_or(
        "short_conv_kernel_size", fields.integer_or("linear_conv_kernel_dim", 4), least=1
    )
    mixers = _mixers(
        kinds,
        lambda: latent_attention(fields, dims),
        lambda: recurrent.kimi_delta_attention(dims.hidden, heads=heads, head_dim=head_dim, kernel=kernel),
    )
    traits = DecoderTraits(
        mlp_bias=False,
        experts=ExpertTraits(sparse_layers="after_dense", shared="count", shared_field="num_shared_experts"),
    )
    return assemble(fields, dims, traits, mixers, mlps_of(fields, dims, traits))


def _kimi_kinds(fields: ConfigFields, nested: ConfigFields | None, num_layers: int) -> Sequence[str]:
    listed = layer_types(fields, num_layers)
    if listed is not None:
        return listed
    full = nested.integers("full_attn_layers") if nested is not None else None
    if full is None:
        raise InvalidConfig(f"{fields.where}linear_attn_config.full_attn_layers: missing")
    return ["full_attention" if index + 1 in full else "kda" for index in range(num_layers)]
