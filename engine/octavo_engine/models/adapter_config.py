"""Reads the `adapter_config.json` of a LoRA adapter in PEFT's form.

A field that changes what an adapter computes, in a way that this engine does not, is refused with its
value and a way out; so is any field not known here, unless its value says "off".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.config_fields import ConfigFields
from octavo_engine.models.loading import read_model_json

CONFIG_FILE: Final = "adapter_config.json"

READ: Final = frozenset({"peft_type", "r", "lora_alpha", "use_rslora", "init_lora_weights"})
WITHOUT_EFFECT: Final = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "inference_mode", "revision", "task_type"),
        *("peft_version", "lora_dropout", "qalora_group_size", "megatron_core", "eva_config"),
        # The file's tensors say which modules are adapted.
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    }
)
OFF: Final[tuple[object, ...]] = (None, False, "none", [], {})
MERGE: Final = "merge the adapter into the model (PEFT's merge_and_unload) and serve that"
WAYS_OUT: Final[Mapping[str, str]] = {
    "use_dora": "train without DoRA, or " + MERGE,
    "modules_to_save": "train without whole modules beside the adapter, or " + MERGE,
    "bias": "train with bias none, or " + MERGE,
    "rank_pattern": "train with one rank, or " + MERGE,
    "alpha_pattern": "train with one alpha, or " + MERGE,
}

PLAIN_STARTS: Final[tuple[object, ...]] = (None, True, False, "gaussian", "eva", "orthogonal")
"""Ways to start training that leave the base model's weights as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """What applying an adapter needs to know."""

    rank: int
    scale: float


def read_adapter_config(folder: Path, *, max_rank: int) -> AdapterConfig:
    """Raises a `StartError` that names what is wrong and a way out."""
    raw = read_model_json(folder, CONFIG_FILE, required=True)
    try:
        return _parse(raw, max_rank=max_rank)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{CONFIG_FILE}: {error}") from error


def _parse(raw: Mapping[str, object], *, max_rank: int) -> AdapterConfig:
    kind = raw.get("peft_type")
    if kind != "LORA":
        raise UnsupportedModel(f"peft_type: must be 'LORA', got {kind!r}; {MERGE}")
    _require_off(raw)
    start = raw.get("init_lora_weights")
    if not any(start is plain or start == plain for plain in PLAIN_STARTS):
        raise UnsupportedModel(
            f"init_lora_weights: {start!r} trains against changed base weights; save it with "
            "PEFT's path_initial_model_for_weight_conversion, which makes it a plain adapter"
        )
    fields = ConfigFields(raw)
    rank = fields.integer("r", 8)
    if rank > max_rank:
        raise UnsupportedModel(
            f"r: {rank} is above the highest rank that room is kept for, {max_rank}; "
            f"start with --max-lora-rank {rank}"
        )
    divisor = rank**0.5 if fields.flag("use_rslora", default=False) else rank
    return AdapterConfig(rank=rank, scale=fields.number("lora_alpha", 8.0) / divisor)


def _require_off(raw: Mapping[str, object]) -> None:
    for name, value in raw.items():
        if name in READ or name in WITHOUT_EFFECT or value in OFF:
            continue
        way_out = WAYS_OUT.get(name, MERGE)
        raise UnsupportedModel(f"{name}: {value!r} is not supported; {way_out}")
