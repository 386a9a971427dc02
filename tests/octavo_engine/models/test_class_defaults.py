"""What a file omits is what the model's class of transformers fills in."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from octavo_engine.models.decoder_config import parse_decoder_config
from octavo_engine.models.family import FAMILIES

SIZES = {"hidden_size": 64, "num_hidden_layers": 12, "vocab_size": 256, "max_position_embeddings": 512}


@pytest.mark.parametrize("omitted", [(), tuple(SIZES)], ids=["sizes stated", "nothing stated"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_omitted_fields_are_those_of_the_class(model_type: str, omitted: tuple[str, ...]) -> None:
    stated = {name: value for name, value in SIZES.items() if name not in omitted}
    if model_type == "deepseek_v2":  # the one field that its class leaves at null
        stated["num_experts_per_tok"] = 2
    whole = CONFIG_MAPPING[model_type](**stated).to_dict()
    assert parse_decoder_config({"model_type": model_type, **stated}) == parse_decoder_config(
        {**whole, "dtype": "bfloat16"}
    )


def test_published_gemma3_states_less_than_its_size() -> None:
    """The text part of gemma-3-4b's file, as it is."""
    text: dict[str, Any] = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = parse_decoder_config({"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"})
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (8, 4, 256)
    assert (config.vocab_size, config.tied_embeddings, config.attention_scale) == (262208, True, 256**-0.5)
    local, distant = config.layers[0], config.layers[5]
    assert (local.window, distant.window) == (1024, None)
    assert local.rope is not None and distant.rope is not None
    assert (local.rope.kind, local.rope.theta) == ("default", 1e4)
    assert (distant.rope.kind, distant.rope.theta) == ("linear", 1e6)
    assert config.dtype == "bfloat16"


def test_number_of_experts_under_another_name_is_not_overruled() -> None:
    config = parse_decoder_config(
        {"model_type": "qwen3_moe", **SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}
    )
    experts = config.layers[0].experts
    assert experts is not None and experts.num_experts == 4
