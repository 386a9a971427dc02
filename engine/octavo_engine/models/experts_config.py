"""Mixtures of experts, read from a configuration: which layers have one, and how it routes.

A router scores all experts by a softmax, the best few compute, and their outputs are summed by weight.
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
    always_normalized: bool = False
    """The chosen weights are made to sum to one; otherwise as `norm_topk_prob` says."""


MIXTRAL: Final = ExpertFamily(
    count_fields=("num_local_experts",),
    inner_size_field="intermediate_size",
    module="block_sparse_moe",
    gate="w1",
    up="w3",
    down="w2",
    always_normalized=True,
)
QWEN3_MOE: Final = ExpertFamily(
    count_fields=("num_experts", "num_local_experts"),
    inner_size_field="moe_intermediate_size",
    module="mlp",
    gate="gate_proj",
    up="up_proj",
    down="down_proj",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """The mixture of one layer."""

    family: ExpertFamily
    num_experts: int
    num_chosen: int
    """Experts that compute each token."""
    inner_size: int
    normalized: bool


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
    return ExpertsConfig(
        family=family,
        num_experts=count,
        num_chosen=chosen,
        inner_size=fields.integer(family.inner_size_field),
        normalized=family.always_normalized or fields.flag("norm_topk_prob", default=False),
    )


def _count(fields: ConfigFields, family: ExpertFamily) -> int:
    for name in family.count_fields:
        count = fields.optional_integer(name)
        if count is not None:
            return count
    raise UnsupportedModel(f"{family.count_fields[0]}: missing from config.json")


def _is_sparse(fields: ConfigFields, index: int) -> bool:
    """Qwen3-MoE may have every second layer sparse, or some by number dense."""
    dense = fields.sequence("mlp_only_layers") or []
    return index not in dense and (index + 1) % fields.integer("decoder_sparse_step", 1) == 0
