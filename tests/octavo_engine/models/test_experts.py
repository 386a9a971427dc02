"""Mixtures of experts: every spelling of their tensors, and what of a configuration is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from octavo_engine.errors import ModelFileError, UnsupportedModel
from octavo_engine.models.decoder_config import parse_decoder_config
from tests.octavo_engine.models.test_decoder_config import BASE
from tests.octavo_engine.oracle import generate, load_engine, request, save_tiny_model

QWEN3_MOE = {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MIXTRAL = {"num_local_experts": 4}


@pytest.mark.parametrize(
    ("config_class", "changes", "published", "stacked"),
    [
        pytest.param(
            "MixtralConfig",
            MIXTRAL,
            "model.layers.0.block_sparse_moe.experts.3.w1.weight",
            "model.layers.0.mlp.experts.gate_up_proj",
            id="mixtral",
        ),
        pytest.param(
            "Qwen3MoeConfig",
            QWEN3_MOE,
            "model.layers.0.mlp.experts.3.gate_proj.weight",
            "model.layers.0.mlp.experts.gate_up_proj",
            id="qwen3 moe",
        ),
    ],
)
def test_published_and_stacked_tensors_are_the_same_model(
    tmp_path: Path, config_class: str, changes: dict[str, Any], published: str, stacked: str
) -> None:
    as_published = save_tiny_model(tmp_path / "published", config_class, num_hidden_layers=2, **changes)
    as_stacked = tmp_path / "stacked"
    AutoModelForCausalLM.from_pretrained(as_published).save_pretrained(as_stacked, save_original_format=False)
    for folder, name in ((as_published, published), (as_stacked, stacked)):
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            assert name in file.offset_keys()
    texts = [
        generate(load_engine(folder), [request("r", [5, 6, 7, 8, 9], 16)])
        for folder in (as_published, as_stacked)
    ]
    assert texts[0] == texts[1]


def test_experts_of_another_number_are_refused_by_name(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path, "MixtralConfig", num_hidden_layers=1, **MIXTRAL)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_local_experts": 4', '"num_local_experts": 3'))
    with pytest.raises(ModelFileError, match=r"block_sparse_moe\.gate\.weight.*\[4, 64\].*\[3, 64\]"):
        load_engine(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mixtral", "num_local_experts": None}, "num_local_experts: missing"),
        ({"model_type": "mixtral", "num_experts_per_tok": None}, "num_experts_per_tok: missing"),
        ({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}, "5 of 4"),
        (
            {"model_type": "qwen3_moe", "num_experts": 16, "moe_intermediate_size": None},
            "moe_intermediate_size: missing",
        ),
    ],
)
def test_incomplete_mixture_is_refused_by_the_field_that_lacks(
    changes: dict[str, object], named: str
) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        parse_decoder_config({**BASE, **changes})


def test_dense_layers_among_sparse_ones_are_told_apart() -> None:
    mixture = {"model_type": "qwen3_moe", "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = parse_decoder_config({**BASE, **mixture, "num_local_experts": 4, "mlp_only_layers": [0, 3]})
    assert [layer.experts is None for layer in config.layers] == [True, False, False, True]
