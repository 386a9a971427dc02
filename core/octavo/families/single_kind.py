"""Models whose layers are one thing each: a mixer or an MLP, never both.

Nemotron-H names each layer by a letter (`M` Mamba-2, `*` attention, `-` MLP, `E` experts); Mamba,
Mamba-2 and Falcon-Mamba have state layers only.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families import recurrent
from octavo.families.attention import attention
from octavo.families.decoder import DecoderTraits, assemble
from octavo.families.feed_forward import ExpertTraits, dense, expert_weights
from octavo.families.parts import NOTHING, Part, linear
from octavo.families.traits import NO_BIAS
from octavo.layers import Weight
from octavo.model_shape import Dimensions, ModelShape, read_dimensions


def parse_nemotron_h(fields: ConfigFields) -> ModelShape:
    """Nemotron-H: each layer is one thing only: Mamba-2, attention, an MLP or experts."""
    kinds = _nemotron_kinds(fields)
    dims = read_dimensions(fields, num_layers=len(kinds))
    parts = {kind: _nemotron_part(fields, dims, kind) for kind in set(kinds)}
    traits = DecoderTraits(norms_per_layer=1)
    mixers = [parts[kind] for kind in kinds]
    return assemble(fields, dims, traits, mixers, [NOTHING] * dims.num_layers)


_NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}


def _nemotron_kinds(fields: ConfigFields) -> tuple[str, ...]:
    listed: Sequence[object] = tuple(fields.text("hybrid_override_pattern") or "")
    if fields.has("layer_types") or fields.has("layers_block_type") or not listed:
        listed = fields.sequence("layer_types") or fields.sequence("layers_block_type") or ()
    kinds = tuple(
        _NEMOTRON_LETTERS.get(str(kind), _NEMOTRON_NAMES.get(str(kind), str(kind))) for kind in listed
    )
    unknown = set(kinds) - set(_NEMOTRON_LETTERS.values())
    if not kinds or unknown:
        raise InvalidConfig(
            f"{fields.where}hybrid_override_pattern: must be letters of M, *, - and E, one for each layer"
        )
    return kinds


def _nemotron_part(fields: ConfigFields, dims: Dimensions, kind: str) -> Part:
    bias = fields.flag("mlp_bias")
    if kind == "mlp":
        return dense(dims.hidden, dims.intermediate, gated=False, bias=bias)
    if kind == "moe":
        return _nemotron_experts(fields, dims, bias)
    if kind == "attention":
        return attention(fields, dims, NO_BIAS)
    heads, head_dim = fields.integer("mamba_num_heads"), fields.integer("mamba_head_dim")
    return recurrent.mamba2(
        fields,
        dims.hidden,
        inner=heads * head_dim,
        heads=heads,
        state=fields.integer("ssm_state_size"),
        groups=fields.integer("n_groups"),
        kernel=fields.integer("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias"),
    )


def _nemotron_experts(fields: ConfigFields, dims: Dimensions, bias: bool) -> Part:
    """Experts without a gate, on a narrower latent input where `moe_latent_size` is given."""
    count, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
    latent = fields.optional_integer("moe_latent_size")
    shared = fields.integer_or("moe_shared_expert_intermediate_size", 0)
    weights: list[Weight] = [
        Weight(path="mixer.gate", outputs=count, inputs=dims.hidden, role="router", pieces=1),
        *expert_weights(latent or dims.hidden, width, count, ExpertTraits(gated=False)),
        *dense(dims.hidden, shared, gated=False, bias=bias, path="mixer.shared_experts").weights,
    ]
    if latent:
        weights += linear("mixer.fc1_latent_proj", latent, dims.hidden, bias=bias)
        weights += linear("mixer.fc2_latent_proj", dims.hidden, latent, bias=bias)
    return Part(weights=tuple(weights), width=2 * (width + shared))


def parse_mamba(fields: ConfigFields) -> ModelShape:
    """Mamba and Falcon-Mamba: state layers only."""
    hidden = fields.integer("hidden_size")
    mixer = recurrent.mamba1(
        fields,
        hidden,
        inner=int(fields.number("expand", 2) * hidden),
        state=fields.integer("state_size"),
        kernel=fields.integer("conv_kernel"),
        rank=recurrent.step_rank(fields, "time_step_rank", hidden),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias"),
    )
    return _state_only(fields, hidden, mixer)


def parse_mamba2(fields: ConfigFields) -> ModelShape:
    hidden = fields.integer("hidden_size")
    mixer = recurrent.mamba2(
        fields,
        hidden,
        inner=int(fields.number("expand", 2) * hidden),
        heads=fields.integer("num_heads"),
        state=fields.integer("state_size"),
        groups=fields.integer("n_groups"),
        kernel=fields.integer("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias"),
    )
    return _state_only(fields, hidden, mixer)


def _state_only(fields: ConfigFields, hidden: int, mixer: Part) -> ModelShape:
    dims = Dimensions(
        num_layers=fields.num_layers(),
        hidden=hidden,
        heads=1,
        kv_heads=1,
        head_dim=hidden,
        intermediate=hidden,
        vocab=fields.integer("vocab_size"),
        positions=fields.integer_or("max_position_embeddings", 0),
    )
    traits = DecoderTraits(norms_per_layer=1)
    return assemble(fields, dims, traits, [mixer] * dims.num_layers, [NOTHING] * dims.num_layers)
