"""What an adapter's folder may hold: anything that would not be applied exactly is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo_engine.errors import ModelFileError, StartError, UnsupportedModel
from octavo_engine.models.adaptable import AdaptableDecoder, make_adaptable
from octavo_engine.models.adapter_config import read_adapter_config
from octavo_engine.models.adapter_loading import read_adapter
from tests.octavo_engine.lora import PEFT_DEFAULTS, save_adapter
from tests.octavo_engine.models.test_families import LLAMA4
from tests.octavo_engine.oracle import load_engine, save_tiny_model

PREFIX = "base_model.model.model.layers.0."


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"), num_hidden_layers=1)


@pytest.fixture(scope="module")
def model(model_dir: Path) -> AdaptableDecoder:
    return make_adaptable(load_engine(model_dir)._runner._model)


@pytest.fixture
def folder(tmp_path: Path, model_dir: Path) -> Path:
    return save_adapter(tmp_path / "adapter", model_dir)


def rewrite(folder: Path, changes: dict[str, torch.Tensor | None]) -> None:
    path = folder / "adapter_model.safetensors"
    tensors: dict[str, Any] = {**load_file(path), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)


def configure(folder: Path, **changes: Any) -> None:
    config = {**PEFT_DEFAULTS, "r": 4, "lora_alpha": 8, **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def refused(folder: Path, model: AdaptableDecoder, kind: type[StartError] = UnsupportedModel) -> str:
    with pytest.raises(kind) as caught:
        read_adapter(folder, model, max_rank=16)
    return str(caught.value)


def test_parts_are_the_scaled_matrices_of_the_file(folder: Path, model: AdaptableDecoder) -> None:
    parts = read_adapter(folder, model, max_rank=16)
    assert set(parts) == set(model.sites)
    assert len(parts) == 7
    stored = load_file(folder / "adapter_model.safetensors")
    part = parts["model.layers.0.mlp.up_proj"]
    assert torch.equal(part.down, stored[PREFIX + "mlp.up_proj.lora_A.weight"].T)
    assert torch.equal(part.up, 2 * stored[PREFIX + "mlp.up_proj.lora_B.weight"].T)


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, 2.0),
        ({"use_rslora": True}, 4.0),
        ({"lora_alpha": 1.5}, 0.375),
        ({"r": 16, "lora_alpha": 16, "init_lora_weights": "gaussian"}, 1.0),
        ({"target_modules": "all-linear", "layers_to_transform": [0], "peft_version": "9"}, 2.0),
        ({"field_of_the_future": None, "another": False, "lora_bias": False, "bias": "none"}, 2.0),
    ],
)
def test_scale_follows_the_configuration(folder: Path, changes: dict[str, Any], scale: float) -> None:
    configure(folder, **changes)
    assert read_adapter_config(folder, max_rank=16).scale == pytest.approx(scale)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"peft_type": "LOHA"}, ("peft_type", "'LOHA'", "merge_and_unload")),
        ({"peft_type": None}, ("peft_type", "None")),
        ({"modules_to_save": ["lm_head"]}, ("modules_to_save", "['lm_head']", "merge_and_unload")),
        ({"use_dora": True}, ("use_dora", "True", "without DoRA")),
        ({"bias": "lora_only"}, ("bias", "'lora_only'", "bias none")),
        ({"lora_bias": True}, ("lora_bias", "True", "merge")),
        ({"fan_in_fan_out": True}, ("fan_in_fan_out", "True")),
        ({"rank_pattern": {"q_proj": 8}}, ("rank_pattern", "{'q_proj': 8}", "one rank")),
        ({"alpha_pattern": {"q_proj": 8}}, ("alpha_pattern", "one alpha")),
        ({"layer_replication": [[0, 1]]}, ("layer_replication", "[[0, 1]]")),
        ({"trainable_token_indices": [5]}, ("trainable_token_indices", "[5]")),
        ({"target_parameters": ["experts.down_proj"]}, ("target_parameters",)),
        ({"alora_invocation_tokens": [1, 2]}, ("alora_invocation_tokens", "[1, 2]")),
        ({"field_of_the_future": "on"}, ("field_of_the_future", "'on'", "merge")),
        ({"init_lora_weights": "pissa_niter_4"}, ("init_lora_weights", "'pissa_niter_4'", "conversion")),
        ({"r": 17}, ("r: 17", "16", "--max-lora-rank 17")),
        ({"r": 0}, ("r: ", "got 0")),
        ({"r": "8"}, ("r: ", "got '8'")),
        ({"lora_alpha": "x"}, ("lora_alpha", "'x'")),
    ],
)
def test_configuration_that_is_not_applied_is_refused_by_name(
    folder: Path, model: AdaptableDecoder, changes: dict[str, Any], told: tuple[str, ...]
) -> None:
    configure(folder, **changes)
    message = refused(folder, model)
    assert "adapter_config.json" in message
    assert [part for part in told if part not in message] == []


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.embed_tokens.lora_A.weight",
        "base_model.model.lm_head.lora_B.weight",
        PREFIX + "self_attn.q_proj.lora_magnitude_vector",
        PREFIX + "self_attn.qkv_proj.lora_A.weight",
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
    ],
)
def test_tensor_that_would_not_be_applied_is_refused(
    folder: Path, model: AdaptableDecoder, name: str
) -> None:
    rewrite(folder, {name: torch.zeros(4, 64)})
    message = refused(folder, model)
    assert name in message
    assert "q_proj" in message and "merge_and_unload" in message


@pytest.mark.parametrize(
    ("tensor", "shape", "expected"),
    [
        ("self_attn.k_proj.lora_A.weight", (4, 32), "[4, 64]"),
        ("self_attn.k_proj.lora_B.weight", (64, 4), "[32, 4]"),
        ("self_attn.k_proj.lora_A.weight", (8, 64), "[4, 64]"),
        ("mlp.down_proj.lora_A.weight", (4, 64), "[4, 96]"),
    ],
)
def test_wrong_shape_is_refused_with_both(
    folder: Path, model: AdaptableDecoder, tensor: str, shape: tuple[int, ...], expected: str
) -> None:
    rewrite(folder, {PREFIX + tensor: torch.zeros(shape)})
    message = refused(folder, model, ModelFileError)
    assert tensor in message and str(list(shape)) in message and expected in message


def test_half_of_a_part_is_refused(folder: Path, model: AdaptableDecoder) -> None:
    rewrite(folder, {PREFIX + "mlp.gate_proj.lora_B.weight": None})
    assert "gate_proj.lora_B" in refused(folder, model, ModelFileError)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_refused(folder: Path, model: AdaptableDecoder, value: float) -> None:
    rewrite(folder, {PREFIX + "mlp.gate_proj.lora_B.weight": torch.full((96, 4), value)})
    message = refused(folder, model)
    assert "mlp.gate_proj" in message and "not finite" in message


def test_missing_and_broken_files_are_named(folder: Path, model: AdaptableDecoder, tmp_path: Path) -> None:
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "truncated" in refused(folder, model, ModelFileError)
    save_file({}, weights)
    assert "no tensor" in refused(folder, model, ModelFileError)
    weights.unlink()
    assert "adapter_model.safetensors: missing" in refused(folder, model, ModelFileError)
    (folder / "adapter_model.bin").write_bytes(b"")
    assert "pickled" in refused(folder, model)
    (folder / "adapter_config.json").write_text("[]")
    assert "adapter_config.json: must hold an object" in refused(folder, model, ModelFileError)
    assert "adapter_config.json: missing" in refused(tmp_path / "gone", model, ModelFileError)


def test_projections_of_experts_are_not_adaptable(tmp_path: Path) -> None:
    model_dir = save_tiny_model(tmp_path / "model", "MixtralConfig", num_hidden_layers=1, num_local_experts=2)
    model = make_adaptable(load_engine(model_dir)._runner._model)
    assert {name.rpartition(".")[2] for name in model.sites} == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_llama4_takes_adapters_on_its_plain_mlps_and_not_on_attention_that_was_reordered(
    tmp_path: Path,
) -> None:
    folder = save_tiny_model(
        tmp_path, "Llama4TextConfig", **{**LLAMA4, "num_hidden_layers": 2, "interleave_moe_layer_step": 2}
    )
    sites = make_adaptable(load_engine(folder)._runner._model).sites
    names = ("gate_proj", "up_proj", "down_proj")
    assert set(sites) == {f"model.layers.0.feed_forward.{name}" for name in names}
