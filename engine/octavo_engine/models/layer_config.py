"""What differs between the layers of one model: how far back they see, their positions, their experts.

Kinds come from `layer_types` where a configuration lists them, else from its model type's own rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.config_fields import ConfigFields
from octavo_engine.models.experts_config import ExpertsConfig, parse_experts
from octavo_engine.models.family import FamilySwitches
from octavo_engine.models.rope_config import RopeConfig, parse_rope

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"

NO_ROPE_INTERVAL: Final = 4
"""Where a type has layers without rotary embedding and does not list them: every fourth."""
TYPES_WITHOUT_SOME_ROPE: Final = ("smollm3", "llama4_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """One layer."""

    window: int | None
    rope: RopeConfig | None
    """None: this layer has no position encoding."""
    experts: ExpertsConfig | None = None
    """None: one MLP of the model's intermediate size."""


def parse_layers(fields: ConfigFields, family: FamilySwitches, head_dim: int) -> tuple[LayerConfig, ...]:
    """All layers; raises `UnsupportedModel` for a kind that this model type does not have."""
    num_layers = fields.integer("num_hidden_layers")
    turned = _turned_layers(fields, num_layers)
    kinds = _layer_kinds(fields, family, turned)
    windows = {
        FULL: None,
        SLIDING: fields.optional_integer("sliding_window"),
        CHUNKED: fields.optional_integer("attention_chunk_size"),
    }
    ropes = {kind: parse_rope(fields.config, head_dim=head_dim, layer_kind=kind) for kind in set(kinds)}
    experts = parse_experts(fields, family.experts, num_layers)
    return tuple(
        LayerConfig(window=windows[kind], rope=ropes[kind] if turned[index] else None, experts=experts[index])
        for index, kind in enumerate(kinds)
    )


def _turned_layers(fields: ConfigFields, num_layers: int) -> Sequence[bool]:
    """Which layers have a rotary embedding; `no_rope_layers` lists 0 for those that have none."""
    listed = fields.sequence("no_rope_layers")
    if listed:
        if len(listed) != num_layers:
            raise UnsupportedModel(f"no_rope_layers: {len(listed)} entries for {num_layers} layers")
        return [bool(turned) for turned in listed]
    if fields.config["model_type"] not in TYPES_WITHOUT_SOME_ROPE:
        return [True] * num_layers
    interval = fields.integer("no_rope_layer_interval", NO_ROPE_INTERVAL)
    return [(index + 1) % interval != 0 for index in range(num_layers)]


def _layer_kinds(fields: ConfigFields, family: FamilySwitches, turned: Sequence[bool]) -> tuple[str, ...]:
    num_layers = len(turned)
    stated = fields.sequence("layer_types")
    if stated is not None:
        kinds = tuple(str(kind) for kind in stated)
        unknown = set(kinds) - {FULL, CHUNKED if family.chunked_windows else SLIDING}
        if unknown or len(kinds) != num_layers:
            raise UnsupportedModel(f"layer_types: {sorted(unknown) or len(kinds)} for {num_layers} layers")
        return kinds
    if family.chunked_windows:
        chunks = fields.optional_integer("attention_chunk_size") is not None
        return tuple(CHUNKED if chunks and has_rope else FULL for has_rope in turned)
    if fields.optional_integer("sliding_window") is None:
        return (FULL,) * num_layers
    return tuple(
        SLIDING if _slides(fields, index, has_rope=has_rope) else FULL
        for index, has_rope in enumerate(turned)
    )


def _slides(fields: ConfigFields, index: int, *, has_rope: bool) -> bool:
    """Whether a layer slides where only a window is stated, by each model type's own rule."""
    return {
        "mistral": True,
        "mixtral": True,
        "phi3": True,
        "gemma2": index % 2 == 0,
        "gemma3_text": (index + 1) % fields.integer("sliding_window_pattern", 6) != 0,
        "qwen2": _qwen_slides(fields, index),
        "qwen3": _qwen_slides(fields, index),
        "qwen3_moe": fields.flag("use_sliding_window", default=False),
        "smollm3": fields.flag("use_sliding_window", default=False) and not has_rope,
    }.get(str(fields.config["model_type"]), False)


def _qwen_slides(fields: ConfigFields, index: int) -> bool:
    return fields.flag("use_sliding_window", default=False) and index >= fields.integer(
        "max_window_layers", 28
    )
