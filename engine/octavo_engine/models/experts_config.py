"""Mixtures of experts, read from a configuration: which layers have one, and how it routes.

A router scores all experts, by a softmax or (Llama-4) each by itself; the best few compute, and their
outputs are summed by weight, or (Llama-4) their inputs are weighted and the outputs summed.
Sources: Mixtral, arXiv 2401.04088; DeepSeek-V2, arXiv 2405.04434; the model classes of `transformers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.config_fields import ConfigFields


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertFamily:
    """Where families of mixtures differ: the names of fields and tensors, and what is implied."""

    count_fields: tuple[str, ...]
    """The number of experts, in the published spelling and in that of `transformers`."""
    inner_size_field: str
    module: str
    """The block's name below its layer in published checkpoints; `transformers` calls it `mlp`."""
    gate: str
    up: str
    down: str
    normalized: bool | None = None
    """Whether the chosen weights are made to sum to one; None: as `norm_topk_prob` says."""
    float32_router: bool = False
    router: str = "gate"
    shared: str = "shared_experts"
    """Name of the MLP that computes every token besides."""
    always_shared: bool = False
    """There is one, as wide as an expert, though no field says so."""
    weighs_inputs: bool = False
    """The sigmoid of a chosen expert's score scales what goes into it."""
    transposed: bool = False
    """Checkpoints hold all experts of a layer in two tensors, each matrix `in x out`."""


MIXTRAL: Final = ExpertFamily(
    count_fields=("num_local_experts",),
    inner_size_field="intermediate_size",
    module="block_sparse_moe",
    gate="w1",
    up="w3",
    down="w2",
    normalized=True,
)
QWEN3_MOE: Final = ExpertFamily(
    count_fields=("num_experts", "num_local_experts"),
    inner_size_field="moe_intermediate_size",
    module="mlp",
    gate="gate_proj",
    up="up_proj",
    down="down_proj",
)
DEEPSEEK_V2: Final = ExpertFamily(
    count_fields=("n_routed_experts",),
    inner_size_field="moe_intermediate_size",
    module="mlp",
    gate="gate_proj",
    up="up_proj",
    down="down_proj",
    normalized=False,
    float32_router=True,
)
LLAMA4: Final = ExpertFamily(
    count_fields=("num_local_experts",),
    inner_size_field="intermediate_size",
    module="feed_forward",
    gate="gate_proj",
    up="up_proj",
    down="down_proj",
    normalized=False,
    router="router",
    shared="shared_expert",
    always_shared=True,
    weighs_inputs=True,
    transposed=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """Experts in equal groups, of which each token uses the best few only (by their best expert)."""

    count: int
    num_chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """The mixture of one layer."""

    family: ExpertFamily
    num_experts: int
    num_chosen: int
    """Experts that compute each token."""
    inner_size: int
    normalized: bool
    scale: float
    """On the sum of the chosen experts."""
    groups: ExpertGroups | None
    shared_size: int
    """Inner size of the MLP that computes every token besides; 0 where there is none."""


def parse_experts(
    fields: ConfigFields, family: ExpertFamily | None, num_layers: int
) -> tuple[ExpertsConfig | None, ...]:
    """For each layer its mixture, or None where it has one MLP."""
    if family is None:
        return (None,) * num_layers
    mixture = _parse_mixture(fields, family)
    return tuple(mixture if _is_sparse(fields, index) else None for index in range(num_layers))


def _parse_mixture(fields: ConfigFields, family: ExpertFamily) -> ExpertsConfig:
    count, chosen = _count(fields, family), fields.integer("num_experts_per_tok")
    if chosen > count:
        raise UnsupportedModel(f"num_experts_per_tok: {chosen} of {count} experts")
    _require_softmax(fields)
    inner = fields.integer(family.inner_size_field)
    return ExpertsConfig(
        family=family,
        num_experts=count,
        num_chosen=chosen,
        inner_size=inner,
        normalized=_normalized(fields, family),
        scale=fields.number("routed_scaling_factor", 1.0),
        groups=_parse_groups(fields, count, chosen),
        shared_size=inner * (fields.integer("n_shared_experts", int(family.always_shared), least=0)),
    )


def _require_softmax(fields: ConfigFields) -> None:
    scoring = fields.config.get("scoring_func", "softmax")
    if scoring != "softmax":
        raise UnsupportedModel(f"scoring_func: {scoring!r} is not softmax")


def _normalized(fields: ConfigFields, family: ExpertFamily) -> bool:
    stated = fields.flag("norm_topk_prob", default=False)
    if family.normalized is None:
        return stated
    if stated and not family.normalized:
        raise UnsupportedModel("norm_topk_prob: true, but this model type never sums its weights to one")
    return family.normalized


def _parse_groups(fields: ConfigFields, num_experts: int, num_chosen: int) -> ExpertGroups | None:
    method = fields.config.get("topk_method") or "greedy"
    if method == "greedy":
        return None
    if method != "group_limited_greedy":
        raise UnsupportedModel(f"topk_method: {method!r} is not one of greedy, group_limited_greedy")
    groups = ExpertGroups(count=fields.integer("n_group"), num_chosen=fields.integer("topk_group"))
    if num_experts % groups.count or groups.num_chosen * (num_experts // groups.count) < num_chosen:
        raise UnsupportedModel(
            f"n_group: {num_experts} experts in {groups.count} groups, of which topk_group "
            f"({groups.num_chosen}) are used, cannot give num_experts_per_tok ({num_chosen})"
        )
    return groups


def _count(fields: ConfigFields, family: ExpertFamily) -> int:
    for name in family.count_fields:
        count = fields.optional_integer(name)
        if count is not None:
            return count
    raise UnsupportedModel(f"{family.count_fields[0]}: missing from config.json")


def _is_sparse(fields: ConfigFields, index: int) -> bool:
    """Qwen3-MoE may have every second layer sparse, or some by number dense; DeepSeek's first are dense.

    Llama-4 lists those that are sparse, or says that every so-manieth is.
    """
    sparse = fields.sequence("moe_layers")
    if sparse is not None:
        return index in sparse
    dense = fields.sequence("mlp_only_layers") or []
    return (
        index not in dense
        and (index + 1) % fields.integer("decoder_sparse_step", 1) == 0
        and index >= fields.integer("first_k_dense_replace", 0, least=0)
        and index % fields.integer("moe_layer_freq", 1) == 0
        and (index + 1) % fields.integer("interleave_moe_layer_step", 1) == 0
    )
