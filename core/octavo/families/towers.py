"""Vision towers whose weights are known exactly; those of other models are said to be left out.

A tower caches nothing for the decoder: it only takes memory for its weights, in the served type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.layers import Weight

COLOURS: Final = 3


def _tower(path: str, parameters: int) -> Weight:
    """All of one part of a tower as one weight: only its size matters."""
    return Weight(path=f"vision_tower.{path}", outputs=parameters, role="tower", pieces=1)


def _with_bias(outputs: int, inputs: int) -> int:
    return outputs * inputs + outputs


def siglip(vision: ConfigFields, text_hidden: int) -> list[Weight]:
    """SigLIP with Gemma 3's projector."""
    hidden, width = (
        vision.integer_or("hidden_size", 768, least=1),
        vision.integer_or("intermediate_size", 3072),
    )
    layers = vision.integer_or("num_hidden_layers", 12)
    patch, image = vision.integer_or("patch_size", 16, least=1), vision.integer_or("image_size", 224)
    attention = 4 * _with_bias(hidden, hidden)
    mlp = _with_bias(width, hidden) + _with_bias(hidden, width)
    embeddings = _with_bias(hidden, COLOURS * patch * patch) + (image // patch) ** 2 * hidden
    pooling = (attention + mlp + 3 * hidden) if vision.flag("vision_use_head", True) else 0
    return [
        _tower("embeddings", embeddings),
        _tower("layers", layers * (attention + mlp + 4 * hidden)),
        _tower("head", 2 * hidden + pooling),
        _tower("projector", hidden * text_hidden + hidden),
    ]


def gemma4_vision(vision: ConfigFields, text_hidden: int) -> list[Weight]:
    """Gemma 4's tower: a gated MLP, grouped heads, a table of positions for each axis."""
    hidden, width = (
        vision.integer_or("hidden_size", 768, least=1),
        vision.integer_or("intermediate_size", 3072),
    )
    layers, patch = vision.integer_or("num_hidden_layers", 16), vision.integer_or("patch_size", 16)
    heads, kv_heads = (
        vision.integer_or("num_attention_heads", 12),
        vision.integer_or("num_key_value_heads", 12),
    )
    head_dim = vision.integer_or("head_dim", 64)
    positions = vision.integer_or("position_embedding_size", 10 * 1024)
    attention = 2 * hidden * head_dim * (heads + kv_heads) + 2 * head_dim
    return [
        _tower("embeddings", 2 * positions * hidden + COLOURS * patch * patch * hidden),
        _tower("layers", layers * (attention + COLOURS * width * hidden + 4 * hidden)),
        _tower("projector", hidden * text_hidden),
    ]


def qwen3_vl_vision(vision: ConfigFields, text_hidden: int) -> list[Weight]:
    """Qwen3-VL's tower: patches in time, a merger, and one more merger for each deep-stack layer."""
    hidden, width = (
        vision.integer_or("hidden_size", 1152, least=1),
        vision.integer_or("intermediate_size", 4304),
    )
    depth, patch = vision.integer_or("depth", 27), vision.integer_or("patch_size", 16)
    frames, merge = vision.integer_or("temporal_patch_size", 2), vision.integer_or("spatial_merge_size", 2)
    out = vision.integer_or("out_hidden_size", text_hidden)
    positions = vision.integer_or("num_position_embeddings", 2304)
    deep = vision.integers("deepstack_visual_indexes")
    num_deep = 3 if deep is None else len(deep)
    merged = hidden * merge * merge
    block = _with_bias(3 * hidden, hidden) + _with_bias(hidden, hidden) + 4 * hidden
    block += _with_bias(width, hidden) + _with_bias(hidden, width)
    merger = _with_bias(merged, merged) + _with_bias(out, merged)
    patches = _with_bias(hidden, COLOURS * frames * patch * patch)
    return [
        _tower("embeddings", patches + positions * hidden),
        _tower("blocks", depth * block),
        _tower("mergers", merger + 2 * hidden + num_deep * (merger + 2 * merged)),
    ]


def step_vision(vision: ConfigFields, text_hidden: int) -> list[Weight]:
    """Step's tower: scaled residuals, and two convolutions that halve the grid and double the width."""
    hidden, width = (
        vision.integer_or("hidden_size", 1536, least=1),
        vision.integer_or("intermediate_size", 8960),
    )
    layers, patch = vision.integer_or("num_hidden_layers", 47), vision.integer_or("patch_size", 14, least=1)
    image = vision.integer_or("image_size", 728)
    block = (
        4 * _with_bias(hidden, hidden) + _with_bias(width, hidden) + _with_bias(hidden, width) + 6 * hidden
    )
    taps = 3 * 3
    down = _with_bias(2 * hidden, taps * hidden) + _with_bias(4 * hidden, taps * 2 * hidden)
    return [
        _tower("embeddings", COLOURS * patch * patch * hidden + (image // patch) ** 2 * hidden + 2 * hidden),
        _tower("layers", layers * block),
        _tower("downsamplers", down),
        _tower("projector", 4 * hidden * text_hidden),
    ]


Tower = Callable[[ConfigFields, int], list[Weight]]

TOWERS: Final[Mapping[str, Tower]] = {
    "gemma3": siglip,
    "gemma4": gemma4_vision,
    "qwen3_vl": qwen3_vl_vision,
    "qwen3_vl_moe": qwen3_vl_vision,
    "step3p7": step_vision,
}
"""By the wrapper's `model_type`."""

ALWAYS_PRESENT: Final = frozenset({"step3p7"})
"""Wrappers whose class fills in a whole vision part where the file has none."""
