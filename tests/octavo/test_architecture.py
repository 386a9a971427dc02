"""Configurations by example: spellings, nesting, sharing, and what is said about gaps."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections import Counter
from typing import Any

import pytest

import octavo
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidConfig, Unsupported
from octavo.families.class_defaults import CLASS_DEFAULTS
from octavo.kv_sizing import kv_bytes_per_token, kv_layout, resolve_dtype, resolve_kv_dtype
from octavo.layers import AttentionCache, LatentCache, StateCache
from octavo.weights import params_total
from tests.octavo.kv_cases import CASES, config_of

BASE: dict[str, Any] = {
    "num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip


def parsed(**fields: Any) -> ModelArchitecture:
    arch = parse_architecture({**BASE, **fields})
    assert isinstance(arch, ModelArchitecture), arch
    return arch


def windows(arch: ModelArchitecture) -> list[int | None]:
    caches = [cache for layer in arch.layers for cache in layer.caches]
    return [cache.window if isinstance(cache, AttentionCache) else -1 for cache in caches]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"model_type": "mistral", "sliding_window": 64}, [64] * 8, id="every layer"),
        pytest.param({"model_type": "mistral", "sliding_window": None}, [None] * 8, id="null is full"),
        pytest.param({"model_type": "mistral"}, [4096] * 8, id="class default"),
        pytest.param(
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, [None] * 8, id="off"
        ),
        pytest.param(
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 6},
            [None] * 6 + [64] * 2,
            id="from a layer on",
        ),
        pytest.param({"model_type": "gemma2", "sliding_window": 64}, [64, None] * 4, id="every second"),
        pytest.param(
            {"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 4},
            [64, 64, 64, None] * 2,
            id="period",
        ),
        pytest.param(
            {"model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": "LLG"},
            [64, 64, None, 64, 64, None, 64, 64],
            id="letters",
        ),
        pytest.param(
            {
                "model_type": "qwen3",
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"] * 4,
            },
            [64, None] * 4,
            id="listed",
        ),
        pytest.param(
            {"model_type": "llama4_text", "attention_chunk_size": 128},
            [128, 128, 128, None] * 2,
            id="chunks unless without rotary positions",
        ),
    ],
)
def test_windows_are_found_in_every_spelling(fields: dict[str, Any], expected: list[int | None]) -> None:
    assert windows(parsed(**fields)) == expected


def test_list_of_kinds_is_refused_when_it_is_too_short() -> None:
    with pytest.raises(InvalidConfig, match="layer_types: must name a kind for each of the 8 layers"):
        parsed(model_type="qwen3", layer_types=["full_attention"])


def test_language_model_is_read_when_it_is_nested_beside_a_tower() -> None:
    arch = parse_architecture(
        {
            "model_type": "some_wrapper",
            "text_config": {**BASE, "model_type": "llama"},
            "vision_config": {"num_hidden_layers": 99, "num_attention_heads": 7},
        }
    )
    assert isinstance(arch, ModelArchitecture)
    assert arch.num_layers == 8
    assert not arch.params_known
    assert any("vision_config are not counted" in note for note in arch.notes)


def test_type_is_taken_from_the_class_when_it_is_missing() -> None:
    arch = parse_architecture({**BASE, "architectures": ["LlamaForCausalLM"]})
    assert isinstance(arch, ModelArchitecture)
    assert arch.model_type == "llama"


def test_gaps_are_named_when_the_class_defaults_fill_them() -> None:
    arch = parsed(model_type="gemma", num_hidden_layers=3)
    assert any("tie_word_embeddings=True" in note for note in arch.notes)
    assert arch.confidence == "high"
    bare = parse_architecture({"model_type": "gemma"})
    assert isinstance(bare, ModelArchitecture)
    assert bare.confidence == "medium"


def test_unknown_type_is_unsupported_with_what_is_known() -> None:
    answer = parse_architecture({**BASE, "model_type": "unheard_of"})
    assert isinstance(answer, Unsupported)
    assert "num_key_value_heads=2" in answer.known


def test_more_kv_heads_than_heads_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="num_key_value_heads: 9 is more than the 4"):
        parsed(model_type="llama", num_key_value_heads=9)


@pytest.mark.parametrize(
    ("stored", "served"),
    [("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", "bfloat16"), (None, "bfloat16")],
)
def test_dtype_is_served_as_stored_but_for_float32(stored: str | None, served: str) -> None:
    arch = parsed(model_type="llama", torch_dtype=stored)
    assert resolve_dtype(arch) == served
    assert resolve_dtype(arch, "float32") == "float32"


def test_kv_dtype_follows_the_served_type() -> None:
    assert resolve_kv_dtype(parsed(model_type="llama", torch_dtype="float16"), "auto") == "fp16"
    assert resolve_kv_dtype(parsed(model_type="llama"), "fp8") == "fp8"


def test_layers_that_share_keep_nothing() -> None:
    arch = parse_architecture(config_of(CASES["A34"]) or {})
    assert isinstance(arch, ModelArchitecture)
    assert [bool(layer.caches) for layer in arch.layers] == [True] * 20 + [False] * 15


def test_kinds_of_caches_are_told_apart_in_a_hybrid() -> None:
    arch = parse_architecture(config_of(CASES["A94"]) or {})
    assert isinstance(arch, ModelArchitecture)
    kinds = Counter(type(cache) for layer in arch.layers for cache in layer.caches)
    assert kinds == {StateCache: 20, LatentCache: 7}


def test_block_grows_until_a_state_fits_its_page() -> None:
    arch = parse_architecture(config_of(CASES["A56"]) or {})
    assert isinstance(arch, ModelArchitecture)
    assert kv_layout(arch, kv_dtype="bf16", block_size=16).block_size == 784
    assert kv_layout(arch, kv_dtype="fp8", block_size=16).block_size == 1568


def test_pages_of_kinds_are_equal_when_their_tokens_are_not() -> None:
    arch = parse_architecture(config_of(CASES["A36"]) or {})
    assert isinstance(arch, ModelArchitecture)
    layout = kv_layout(arch, kv_dtype="bf16", block_size=16)
    assert {kind.name: kind.block_tokens for kind in layout.kinds} == {"sliding": 16, "full": 32}
    assert layout.layers_per_group == 10


@pytest.mark.parametrize(
    ("config", "bytes_per_token", "parameters"),
    [
        pytest.param(
            {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60},
            122_880,
            41_303_293_952,
            id="Falcon-40B's original file, where only n_head_kv tells",
        ),
        pytest.param(
            {
                "model_type": "openelm",
                "num_transformer_layers": 16,
                "model_dim": 1280,
                "head_dim": 64,
                "vocab_size": 32_000,
                "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
                "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4,
                "ffn_multipliers": [
                    *(0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13),
                    *(2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0),
                ],
                "ffn_dim_divisor": 256,
                "share_input_output_layers": True,
                "normalize_qk_projections": True,
            },
            16_128,
            271_527_168,
            id="OpenELM-270M, with heads and widths of every layer",
        ),
        pytest.param(
            {
                "model_type": "chatglm",
                "hidden_size": 4096,
                "inner_hidden_size": 16_384,
                "num_attention_heads": 32,
                "num_layers": 28,
                "vocab_size": 130_528,
            },
            458_752,
            6_173_286_400,
            id="the first ChatGLM-6B",
        ),
        pytest.param(
            {
                "model_type": "hunyuan",
                "num_hidden_layers": 4,
                "hidden_size": 256,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 64,
                "num_experts": 2,
                "vocab_size": 100,
                "use_cla": True,
                "cla_share_factor": 2,
            },
            2 * 2 * 2 * 64 * 2,
            None,
            id="Hunyuan, where every second layer reads another's",
        ),
    ],
)
def test_published_model_is_sized_as_published(
    config: dict[str, Any], bytes_per_token: int, parameters: int | None
) -> None:
    arch = parse_architecture(config)
    assert isinstance(arch, ModelArchitecture)
    assert kv_bytes_per_token(arch, kv_dtype="bf16") == bytes_per_token
    assert parameters is None or params_total(arch) == parameters


def test_values_are_narrower_than_keys_where_the_model_says_so() -> None:
    arch = parse_architecture({"model_type": "mimo_v2_flash"})
    assert isinstance(arch, ModelArchitecture)
    full, local = arch.layers[0].caches[0], arch.layers[1].caches[0]
    assert isinstance(full, AttentionCache)
    assert isinstance(local, AttentionCache)
    assert (full.num_kv_heads, full.key_dim, full.value_dim, full.window) == (4, 192, 128, None)
    assert (local.num_kv_heads, local.key_dim, local.value_dim, local.window) == (8, 192, 128, 129)


def test_defaults_are_recorded_for_the_families() -> None:
    assert CLASS_DEFAULTS["gemma3_text"]["vocab_size"] == 262_208


def test_examples_in_the_documentation_of_every_module_are_right() -> None:
    names = [module.name for module in pkgutil.walk_packages(octavo.__path__, "octavo.")]
    results = [doctest.testmod(importlib.import_module(name)) for name in names if "__main__" not in name]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 7


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        pytest.param({"kv_lora_rank": 512}, "kv_lora_rank=512", id="latent attention"),
        pytest.param({"num_local_experts": 8}, "num_local_experts=8", id="experts"),
        pytest.param({"mamba_d_state": 16}, "mamba_d_state=16", id="a state"),
        pytest.param({"num_kv_shared_layers": 4}, "num_kv_shared_layers=4", id="shared layers"),
        pytest.param({"use_cla": True}, "use_cla=True", id="cross-layer attention"),
        pytest.param({"sliding_window": 64}, "sliding_window=64", id="a window that the class has not"),
        pytest.param(
            {"interleaved_sliding_window": 64}, "interleaved_sliding_window=64", id="a new spelling"
        ),
    ],
)
def test_confidence_is_low_when_a_known_type_has_a_field_that_its_class_has_not(
    fields: dict[str, Any], word: str
) -> None:
    arch = parsed(model_type="llama", **fields)
    assert arch.confidence == "low"
    assert any(word in note for note in arch.notes)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"sliding_window": None}, id="null"),
        pytest.param({"sliding_window": 64, "use_sliding_window": False}, id="switched off"),
        pytest.param({"num_experts": 1}, id="one expert"),
        pytest.param({"layer_types": ["full_attention"] * 8}, id="all alike"),
        pytest.param({"num_nextn_predict_layers": 1, "layer_types": ["full_attention"] * 9}, id="predicting"),
    ],
)
def test_confidence_stays_high_when_a_foreign_field_says_nothing(fields: dict[str, Any]) -> None:
    arch = parsed(model_type="llama", **fields)
    assert arch.confidence == "high"
    assert arch.notes == parsed(model_type="llama").notes


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param(
            {"model_type": "llama9", "architectures": ["LlamaForCausalLM"]},
            "'llama9' is not known",
            id="new type",
        ),
        pytest.param(
            {"model_type": "llama", "architectures": ["MixtralForCausalLM"]}, "contradict", id="another class"
        ),
        pytest.param(
            {"model_type": "qwen2", "layer_types": ["full_attention"] * 10},
            "names 10 layers",
            id="too many kinds",
        ),
        pytest.param(
            {"model_type": "qwen2", "sliding_window": None, "layer_types": ["sliding_attention"] * 8},
            "no sliding_window",
            id="no window",
        ),
    ],
)
def test_contradiction_is_named_and_the_answer_is_not_sure(fields: dict[str, Any], words: str) -> None:
    arch = parsed(**fields)
    assert arch.confidence == "low"
    assert any(words in note for note in arch.notes)


def test_heads_are_refused_when_they_do_not_share_out_evenly() -> None:
    with pytest.raises(InvalidConfig, match="num_key_value_heads: 3 do not share out the 4 query heads"):
        parsed(model_type="llama", num_key_value_heads=3)


@pytest.mark.parametrize("case_id", sorted(case for case in CASES if config_of(CASES[case])))
def test_real_configuration_is_not_doubted(case_id: str) -> None:
    arch = parse_architecture(config_of(CASES[case_id]) or {})
    assert isinstance(arch, Unsupported) or arch.confidence != "low"
