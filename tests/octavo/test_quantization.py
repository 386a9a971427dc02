"""Bytes of quantized matrices, and which matrices a file leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.quantization import Scheme, is_excluded, scheme_bytes
from octavo.quantization_config import parse_exclusion, read_quantization
from octavo.weights import weights_bytes

CONFIG: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 4, "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
EMBEDDINGS_AND_NORMS = 2 * (2 * 1000 * 256 + 5 * 256)
LINEAR_ELEMENTS = 2 * (4 * 256 * 256 + 3 * 256 * 512)


def quantized(quantization: dict[str, Any]) -> int:
    arch = parse_architecture({**CONFIG, "quantization_config": quantization})
    assert isinstance(arch, ModelArchitecture)
    return weights_bytes(arch) - EMBEDDINGS_AND_NORMS


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        pytest.param(Scheme(bits=8), 128 * 256, id="one scale"),
        pytest.param(Scheme(bits=8, scale_bits=32), 128 * 256 + 4 * 128, id="a scale for each output"),
        pytest.param(Scheme(bits=4, group_size=16, scale_bits=8), 128 * 256 * 9 // 16, id="NVFP4"),
        pytest.param(Scheme(bits=4, group_size=32, scale_bits=8), 128 * 256 * 17 // 32, id="MXFP4"),
        pytest.param(Scheme(bits=8, block=(128, 128), scale_bits=32), 128 * 256 + 8, id="blocks"),
        pytest.param(
            Scheme(bits=4, group_size=128, scale_bits=16, zero_bits=4, index_bits=32),
            128 * 128 + 128 * 2 * 5 // 2 + 256 * 4,
            id="GPTQ",
        ),
    ],
)
def test_matrix_takes_its_elements_and_their_scales(scheme: Scheme, expected: int) -> None:
    assert scheme_bytes(scheme, 128, 256) == expected


@pytest.mark.parametrize(
    ("quantization", "bytes_per_element"),
    [
        pytest.param({"quant_method": "fp8"}, 1, id="fp8"),
        pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128, id="awq"),
        pytest.param({"load_in_4bit": True}, 0.5 + 4 / 64, id="nf4"),
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            0.5 + 1 / 64,
            id="nf4 twice",
        ),
        pytest.param({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625, id="nvfp4"),
    ],
)
def test_linear_maps_shrink_and_embeddings_stay(
    quantization: dict[str, Any], bytes_per_element: float
) -> None:
    assert quantized(quantization) == LINEAR_ELEMENTS * bytes_per_element


def test_weights_are_sized_unquantized_and_said_when_the_method_is_unknown() -> None:
    arch = parse_architecture({**CONFIG, "quantization_config": {"quant_method": "magic"}})
    assert isinstance(arch, ModelArchitecture)
    assert arch.confidence == "low"
    assert any("magic" in note for note in arch.notes)
    assert quantized({"quant_method": "magic"}) == 2 * LINEAR_ELEMENTS


def test_experts_alone_shrink_when_the_method_is_mxfp4() -> None:
    assert quantized({"quant_method": "mxfp4"}) == 2 * LINEAR_ELEMENTS


def test_listed_modules_stay() -> None:
    without_one = quantized({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1.self_attn"]})
    assert without_one == LINEAR_ELEMENTS + 4 * 256 * 256


@pytest.mark.parametrize(
    ("entry", "path", "layer", "expected"),
    [
        pytest.param("lm_head", "lm_head", None, True, id="head"),
        pytest.param("model.layers.3.mlp.gate", "mlp.gate", 3, True, id="one layer"),
        pytest.param("model.layers.3.mlp.gate", "mlp.gate", 4, False, id="another layer"),
        pytest.param("mlp.gate", "mlp.gate_proj", 0, False, id="no part of a name"),
        pytest.param("model.layers.*.self_attn", "self_attn.q_proj", 7, True, id="every layer"),
        pytest.param("re:.*self_attn.*", "self_attn.q_proj", 7, True, id="expression"),
        pytest.param("re:.*self_attn.*", "mlp.up_proj", 7, False, id="expression of another"),
        pytest.param("model.language_model.layers.2.mlp", "mlp.up_proj", 2, True, id="nested model"),
    ],
)
def test_exclusion_names_a_module(entry: str, path: str, layer: int | None, expected: bool) -> None:
    exclusion = parse_exclusion(entry)
    assert exclusion is not None
    assert is_excluded(exclusion, path, layer) is expected


@pytest.mark.parametrize("entry", ["re:(a+)+$", "a|b", "", "[x]"])
def test_expression_is_not_run_when_it_is_more_than_names_and_stars(entry: str) -> None:
    assert parse_exclusion(entry) is None


def test_quantization_is_none_when_the_file_states_none() -> None:
    assert read_quantization({}) is None
    assert read_quantization({"quantization_config": None}) is None


@pytest.mark.parametrize(
    "quantization",
    [
        pytest.param(
            {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*mlp.*": {}}}, id="GPTQ, some modules"
        ),
        pytest.param(
            {"quant_method": "auto-round", "bits": 4, "extra_config": {"layers.0": {"bits": 8}}},
            id="mixed bits",
        ),
        pytest.param({"quant_method": "bitsandbytes", "load_in_4bit": False}, id="neither 4 nor 8 bits"),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4}}},
            },
            id="only some linear maps",
        ),
    ],
)
def test_weights_are_sized_as_unquantized_and_doubted_when_the_method_is_mixed(
    quantization: dict[str, Any],
) -> None:
    arch = parse_architecture({**CONFIG, "quantization_config": quantization})
    assert isinstance(arch, ModelArchitecture)
    assert arch.confidence == "low"
    assert quantized(quantization) == 2 * LINEAR_ELEMENTS


def test_bits_are_eight_when_bitsandbytes_writes_its_private_name() -> None:
    private = {"quant_method": "bitsandbytes", "_load_in_8bit": True, "_load_in_4bit": False}
    assert quantized(private) == quantized({"quant_method": "bitsandbytes", "load_in_8bit": True})


def test_quantization_is_read_when_the_file_uses_its_early_name() -> None:
    values = {"quant_method": "fp8"}
    assert read_quantization({"compression_config": values}) == read_quantization(
        {"quantization_config": values}
    )


def test_note_says_how_to_ask_when_the_checkpoint_is_made_for_a_quantized_cache() -> None:
    values = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    arch = parse_architecture({**CONFIG, "quantization_config": values})
    assert isinstance(arch, ModelArchitecture)
    assert any("kv-cache-dtype fp8" in note for note in arch.notes)
