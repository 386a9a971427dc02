"""Models of several parts: the language model is nested, and only it has a KV cache.

The vision part has layers and heads of its own in the same file; they must not be taken for the
decoder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.families.towers import ALWAYS_PRESENT, TOWERS
from octavo.layers import Weight

TEXT_FIELDS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
OTHER_PARTS: Final = (
    "vision_config",
    "visual",
    "vision_tower_config",
    "audio_config",
    "vit_config",
    "audio_encoder_config",
)

TEXT_TYPE_OF: Final[Mapping[str, str]] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "mllama": "mllama_text_model",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "mistral3": "mistral",
    "pixtral": "mistral",
    "llava": "llama",
    "llava_next": "llama",
    "llava_onevision": "qwen2",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "kimi_vl": "deepseek_v3",
    "kimi_k25": "deepseek_v3",
    "paligemma": "gemma",
    "idefics3": "llama",
    "smolvlm": "llama",
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "glm4v_moe": "glm4_moe",
    "step3p7": "step3p5",
    "deepseek_vl_v2": "deepseek_v2",
    "qwen2_5_omni_thinker": "qwen2",
    "ovis": "qwen2",
}
"""What the nested language model is where it does not say so itself."""


def text_part(config: Mapping[str, object]) -> Mapping[str, object] | None:
    """The nested language model, with what the wrapper says for both; None in a plain file."""
    nested = next((config[name] for name in TEXT_FIELDS if isinstance(config.get(name), Mapping)), None)
    if not isinstance(nested, Mapping):
        return None
    deeper = text_part(nested)
    if deeper is not None:
        return deeper
    shared = {
        name: config[name]
        for name in ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
        if config.get(name) is not None and nested.get(name) is None
    }
    kind = nested.get("model_type") or TEXT_TYPE_OF.get(_wrapper_type(config))
    return {**nested, **shared, "model_type": kind}


def _wrapper_type(config: Mapping[str, object]) -> str:
    stated = config.get("model_type")
    return stated if isinstance(stated, str) else ""


def other_parts(config: Mapping[str, object], hidden: int) -> tuple[list[Weight], tuple[str, ...]]:
    """The weights of the other parts where they are known, and a note on those that are not."""
    present = [name for name in OTHER_PARTS if isinstance(config.get(name), Mapping)]
    wrapper = _wrapper_type(config)
    tower = TOWERS.get(wrapper)
    vision = config.get("vision_config", {} if wrapper in ALWAYS_PRESENT else None)
    weights: list[Weight] = []
    if tower is not None and isinstance(vision, Mapping):
        weights = tower(ConfigFields(vision, {}, "vision_config."), hidden)
        present = [name for name in present if name != "vision_config"]
    notes = tuple(
        f"The weights of {name} are not counted: its architecture is not described." for name in present
    )
    return weights, notes
