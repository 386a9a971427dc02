"""The MLP of a layer: dense, or a mixture of experts with or without shared ones.

Experts are stacks of equal matrices; a router is a small map that no quantization touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.families.parts import Part, Switch, is_on, mlp_weights, vector
from octavo.layers import Weight
from octavo.model_shape import Dimensions

MOST_EXPERTS = 1 << 20

EXPERT_COUNT_FIELDS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTraits:
    """How a family's mixture of experts is laid out."""

    width_field: str = "moe_intermediate_size"
    shared: Literal["none", "count", "width", "always"] = "none"
    """`count`: so many experts' width together; `width`: a width of its own; `always`: one MLP."""
    shared_field: str = "n_shared_experts"
    shared_bias: Switch = False
    shared_gate: bool = False
    """A scalar gate on the shared expert's output (Qwen2-MoE)."""
    router_bias: Switch = False
    correction_bias: bool = False
    """A score-correction vector kept as a parameter."""
    expert_bias: bool = False
    gated: bool = True
    sparse_layers: Literal["all", "after_dense", "step", "interleaved", "period", "range"] = "all"


def num_experts(fields: ConfigFields) -> int:
    """How many routed experts a sparse layer has, whatever the field is called; 0 for none."""
    stated = [name for name in EXPERT_COUNT_FIELDS if fields.has(name)]
    for name in (*stated, *EXPERT_COUNT_FIELDS):
        if fields.raw(name) is not None:
            return fields.integer(name, least=0, most=MOST_EXPERTS)
    return 0


def dense(hidden: int, width: int, *, gated: bool = True, bias: bool = False, path: str = "mlp") -> Part:
    return Part(
        weights=tuple(mlp_weights(path, hidden, width, gated=gated, bias=bias)),
        width=(3 if gated else 2) * width,
    )


def experts(fields: ConfigFields, dims: Dimensions, traits: ExpertTraits) -> Part:
    """A router, its experts and the shared ones."""
    count = num_experts(fields)
    if not count:
        raise InvalidConfig(f"{fields.where}num_experts: missing in a mixture of experts")
    width = fields.optional_integer(traits.width_field) or dims.intermediate
    router = Weight(path="mlp.gate", outputs=count, inputs=dims.hidden, role="router", pieces=1)
    weights = [router, *expert_weights(dims.hidden, width, count, traits)]
    if is_on(fields, traits.router_bias):
        weights.append(vector("mlp.gate.bias", count))
    if traits.correction_bias:
        weights.append(vector("mlp.gate.e_score_correction_bias", count))
    shared_width = _shared_width(fields, traits, width)
    if shared_width:
        bias = is_on(fields, traits.shared_bias)
        weights += mlp_weights("mlp.shared_experts", dims.hidden, shared_width, gated=traits.gated, bias=bias)
        if traits.shared_gate:
            weights.append(vector("mlp.shared_expert_gate", dims.hidden))
    per_token = fields.integer_or("num_experts_per_tok", 1)
    return Part(weights=tuple(weights), width=3 * (width * per_token + shared_width))


def expert_weights(hidden: int, width: int, count: int, traits: ExpertTraits) -> list[Weight]:
    """The routed experts' matrices, each kind as one stack."""
    weights = [
        Weight(
            path="mlp.experts.gate_up_proj",
            outputs=(2 if traits.gated else 1) * width,
            inputs=hidden,
            copies=count,
            role="expert",
        ),
        Weight(path="mlp.experts.down_proj", outputs=hidden, inputs=width, copies=count, role="expert"),
    ]
    if traits.expert_bias:
        biases = (2 if traits.gated else 1) * width + hidden
        weights.append(vector("mlp.experts.bias", biases, copies=count))
    return weights


def _shared_width(fields: ConfigFields, traits: ExpertTraits, width: int) -> int:
    if traits.shared == "none":
        return 0
    if traits.shared == "always":
        return width
    value = fields.integer_or(traits.shared_field, 0)
    return value * width if traits.shared == "count" else value


def sparse_layer_flags(fields: ConfigFields, num_layers: int, traits: ExpertTraits) -> tuple[bool, ...]:
    """Which layers have experts."""
    listed = fields.sequence("mlp_layer_types")
    if listed is not None:
        if len(listed) < num_layers:
            raise InvalidConfig(f"{fields.where}mlp_layer_types: must name a kind for each layer")
        return tuple(kind == "sparse" for kind in listed[:num_layers])
    return tuple(_is_sparse(fields, index, num_layers, traits) for index in range(num_layers))


def _is_sparse(fields: ConfigFields, index: int, num_layers: int, traits: ExpertTraits) -> bool:
    match traits.sparse_layers:
        case "after_dense":
            first = fields.integer_or("first_k_dense_replace", 0)
            return index >= first and index % fields.integer_or("moe_layer_freq", 1, least=1) == 0
        case "step":
            dense_only = fields.integers("mlp_only_layers") or ()
            step = fields.integer_or("decoder_sparse_step", 1, least=1)
            return index not in dense_only and (index + 1) % step == 0
        case "interleaved":
            listed = fields.integers("moe_layers")
            step = fields.integer_or("interleave_moe_layer_step", 1)
            return index in listed if listed is not None else bool(step) and (index + 1) % step == 0
        case "period":
            period = fields.integer_or("expert_layer_period", 1, least=1)
            return index % period == fields.integer_or("expert_layer_offset", 0)
        case "range":
            return _in_range(fields, index, num_layers)
        case _:
            return True


def _in_range(fields: ConfigFields, index: int, num_layers: int) -> bool:
    """Ernie 4.5: experts between two layers, at an interval."""
    first = fields.integer_or("moe_layer_start_index", 0)
    last = fields.integer_or("moe_layer_end_index", -1, least=-1)
    interval = fields.integer_or("moe_layer_interval", 1, least=1)
    last = num_layers - 1 if last < 0 else last
    return (index + 1) % interval == 0 and first <= index <= last
