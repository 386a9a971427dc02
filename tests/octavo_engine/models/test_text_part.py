"""Checkpoints that take images too: their language model is served as it answers to text alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from octavo_engine.errors import ModelFileError, UnsupportedModel
from octavo_engine.models.decoder_config import parse_decoder_config
from tests.octavo_engine.models.test_decoder_config import BASE
from tests.octavo_engine.models.test_families import LLAMA4
from tests.octavo_engine.oracle import (
    TINY,
    count_near_ties,
    generate,
    load_engine,
    random_prompts,
    request,
    save_tiny_model,
    unsettle_norms,
)

LLAMA4_VISION = {
    "hidden_size": 16,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vision_output_dim": 16,
    "projector_input_dim": 16,
    "projector_output_dim": 16,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA3_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
PIXTRAL = {**GEMMA3_VISION, "model_type": "pixtral", "head_dim": 8}
MISTRAL = {"model_type": "mistral", "head_dim": 16, "sliding_window": None}
GEMMA3 = {"head_dim": 16, "sliding_window": 20, "query_pre_attn_scalar": 32}
CASES = [
    pytest.param("Llama4Config", {**TINY, **LLAMA4}, LLAMA4_VISION, {}, id="llama4"),
    pytest.param("Gemma3Config", {**TINY, **GEMMA3}, GEMMA3_VISION, {"mm_tokens_per_image": 1}, id="gemma3"),
    pytest.param(
        "Mistral3Config",
        {**TINY, **MISTRAL},
        PIXTRAL,
        {"spatial_merge_size": 1, "tie_word_embeddings": False},
        id="mistral3",
    ),
]


def save_with_images(
    folder: Path, config_class: str, text: dict[str, Any], vision: dict[str, Any], others: dict[str, Any]
) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(text_config=text, vision_config=vision, **others)
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    unsettle_norms(model)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("config_class", "text", "vision", "others"), CASES)
def test_text_is_what_the_whole_model_makes_of_it(
    tmp_path: Path, config_class: str, text: dict[str, Any], vision: dict[str, Any], others: dict[str, Any]
) -> None:
    oracle = save_with_images(tmp_path, config_class, text, vision, others)
    stored = load_file(tmp_path / "model.safetensors")
    assert any("vision" in name for name in stored)
    engine = load_engine(tmp_path, max_num_batched_tokens=23)
    num_vision = sum(tensor.numel() for name, tensor in stored.items() if "language_model" not in name)
    assert engine.facts.weights_bytes == 4 * (sum(map(torch.numel, stored.values())) - num_vision)
    prompts = random_prompts(4)
    outputs = generate(engine, [request(str(i), prompt, 20) for i, prompt in enumerate(prompts)])
    if config_class == "Llama4Config":  # asked for no image, the whole fails for want of an image's output
        oracle = oracle.language_model
    assert sum(count_near_ties(oracle, *pair) for pair in zip(prompts, outputs, strict=True)) == 0
    assert len(set(map(tuple, outputs))) > 1


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_both_names_of_the_language_model_are_read(tmp_path: Path, prefix: str) -> None:
    save_with_images(tmp_path, *CASES[1].values)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    plain = {name: name.removeprefix("model.").removeprefix("language_model.") for name in tensors}
    renamed = {
        prefix + plain[name].removeprefix("model.") if "language_model" in name else name: tensor
        for name, tensor in tensors.items()
    }
    prompt = [request("r", [5, 6, 7, 8, 9], 12)]
    text = generate(load_engine(tmp_path), prompt)
    save_file(renamed, path, metadata={"format": "pt"})
    assert generate(load_engine(tmp_path), prompt) == text


def test_tensor_of_a_part_that_is_not_known_is_refused(tmp_path: Path) -> None:
    save_with_images(tmp_path, *CASES[1].values)
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), "audio_tower.weight": torch.zeros(4)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=r"audio_tower\.weight"):
        load_engine(tmp_path)


@pytest.mark.parametrize("inside", [True, False], ids=["in the text part", "in the wrapper"])
def test_ends_and_type_are_read_where_they_are_stated(tmp_path: Path, inside: bool) -> None:
    save_with_images(tmp_path, *CASES[1].values)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    for part in (config, config["text_config"]):
        for name in ("dtype", "eos_token_id"):
            part.pop(name, None)
    (config["text_config"] if inside else config).update(dtype="bfloat16", eos_token_id=[4, 7])
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_engine(tmp_path, dtype="auto").facts.dtype == "bfloat16"
    assert load_engine(tmp_path).facts.eos_token_ids == {4, 7}


def test_part_that_a_plain_model_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path, num_hidden_layers=1)
    path = folder / "model.safetensors"
    save_file({**load_file(path), "vision_tower.weight": torch.zeros(4)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=r"vision_tower\.weight"):
        load_engine(folder)


def test_other_types_with_images_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="model_type: 'llava'"):
        parse_decoder_config({"model_type": "llava", "text_config": BASE, "vision_config": {}})
