"""Parameter counts equal those of the model classes of `transformers`, built without memory.

Each family is built as its class defaults describe it and once more with its numbers changed, on
torch's meta device, so that neither the formulas nor the recorded defaults can drift.
"""

from __future__ import annotations

from typing import Any

import pytest

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.weights import params_total

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

SMALL: dict[str, Any] = {
    "num_hidden_layers": 5, "hidden_size": 192, "num_attention_heads": 12, "num_key_value_heads": 3,
    "head_dim": 32, "intermediate_size": 320, "vocab_size": 1000,
}  # fmt: skip
SMALL_MOE = {**SMALL, "moe_intermediate_size": 48}
SMALL_MLA: dict[str, Any] = {
    **SMALL_MOE, "num_key_value_heads": 12, "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "v_head_dim": 40,
}  # fmt: skip
GPT = {"n_layer": 3, "n_embd": 96, "n_head": 6, "vocab_size": 500, "n_positions": 128}

DEFAULTS_ONLY = [
    "llama",
    "mistral",
    "ministral3",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "vaultgemma",
    "phi3",
    "granite",
    "smollm3",
    "olmo",
    "olmo2",
    "olmo3",
    "cohere",
    "cohere2",
    "arcee",
    "apertus",
    "helium",
    "glm",
    "glm4",
    "exaone4",
    "exaone",
    "seed_oss",
    "ernie4_5",
    "internlm3",
    "phi",
    "gpt2",
    "gptj",
    "codegen",
    "gpt_neox",
    "gpt_neo",
    "starcoder2",
    "bloom",
    "persimmon",
    "biogpt",
    "falcon",
    "gpt_bigcode",
    "opt",
    "mpt",
    "stablelm",
    "nanochat",
    "bitnet",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "olmoe",
    "flex_olmo",
    "phimoe",
    "granitemoe",
    "granitemoeshared",
    "glm4_moe",
    "solar_open",
    "ernie4_5_moe",
    "minimax_m2",
    "gpt_oss",
    "llama4_text",
    "exaone_moe",
    "aria_text",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "minicpm3",
    "youtu",
    "sarvam_mla",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "jamba",
    "bamba",
    "granitemoehybrid",
    "falcon_h1",
    "minimax",
    "recurrent_gemma",
    "nemotron_h",
    "mamba",
    "mamba2",
    "falcon_mamba",
    "gemma3n_text",
    "gemma4_text",
]

CHANGED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", SMALL),
    ("ministral", {**SMALL, "layer_types": ["full_attention"] * 5}),
    ("qwen2", {**SMALL, "hidden_size": 384}),
    ("qwen3", {**SMALL, "attention_bias": True}),
    ("gemma3_text", SMALL),
    ("phi3", {**SMALL, "hidden_size": 384, "pad_token_id": 0}),
    ("nemotron", {**SMALL, "mlp_bias": True}),
    ("cohere", {**SMALL, "use_qk_norm": True, "hidden_size": 384}),
    ("hunyuan_v1_dense", SMALL),
    ("phi", {"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6, "qk_layernorm": True}),
    ("gpt2", {**GPT, "n_inner": 77}),
    ("gptj", {**GPT, "rotary_dim": 8}),
    ("gpt_bigcode", {**GPT, "multi_query": False}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 8, "hidden_size": 512,
                "num_hidden_layers": 3, "num_attention_heads": 16, "vocab_size": 500}),
    ("falcon", {"multi_query": False, "alibi": True, "parallel_attn": False, "bias": True, "hidden_size": 96,
                "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 500}),
    ("opt", {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3, "ffn_dim": 200,
             "word_embed_proj_dim": 48, "do_layer_norm_before": False, "vocab_size": 500}),
    ("stablelm", {**SMALL, "hidden_size": 384, "use_qkv_bias": True, "qk_layernorm": True,
                  "use_parallel_residual": True}),
    ("mixtral", {**SMALL, "num_local_experts": 3}),
    ("qwen2_moe", {**SMALL_MOE, "hidden_size": 384, "num_experts": 6, "mlp_only_layers": [1],
                   "decoder_sparse_step": 2, "shared_expert_intermediate_size": 70, "pad_token_id": 0}),
    ("qwen3_moe", {**SMALL_MOE, "num_experts": 6, "mlp_only_layers": [0, 3], "pad_token_id": 0}),
    ("glm4_moe", {**SMALL_MOE, "n_routed_experts": 8, "n_group": 1, "topk_group": 1, "use_qk_norm": True,
                  "first_k_dense_replace": 2, "n_shared_experts": 3}),
    ("gpt_oss", {**SMALL, "num_local_experts": 4, "tie_word_embeddings": True}),
    ("llama4_text", {**SMALL, "intermediate_size_mlp": 500, "interleave_moe_layer_step": 2,
                     "num_local_experts": 4, "pad_token_id": 0}),
    ("ernie4_5_moe", {**SMALL_MOE, "moe_num_experts": 6, "moe_layer_start_index": 1, "moe_layer_interval": 2,
                      "use_bias": True}),
    ("ernie4_5", {**SMALL, "use_bias": True}),
    ("deepseek_v2", {**SMALL_MLA, "q_lora_rank": None, "n_routed_experts": 6, "first_k_dense_replace": 2}),
    ("deepseek_v3", {**SMALL_MLA, "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
                     "attention_bias": True}),
    ("minicpm3", {**SMALL_MLA, "tie_word_embeddings": False}),
    ("qwen3_next", {**SMALL_MOE, "num_experts": 6, "shared_expert_intermediate_size": 70,
                    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
                    "linear_value_head_dim": 24}),
    ("jamba", {**SMALL, "hidden_size": 384, "num_hidden_layers": 9, "num_experts": 4, "mamba_d_state": 8,
               "mamba_proj_bias": True}),
    ("bamba", {**SMALL, "hidden_size": 384, "attn_layer_indices": [1, 3], "mamba_n_heads": 12,
               "mamba_d_head": "auto", "mamba_n_groups": 2}),
    ("falcon_h1", {**SMALL, "mamba_n_heads": 12, "mamba_d_head": 32, "mamba_d_ssm": 384, "mamba_d_state": 16,
                   "mamba_rms_norm": True}),
    ("granitemoehybrid", {**SMALL, "hidden_size": 384, "num_local_experts": 4, "shared_intermediate_size": 90,
                          "layer_types": ["mamba", "attention", "mamba", "mamba", "attention"],
                          "mamba_n_heads": 12, "mamba_d_head": "auto"}),
    ("nemotron_h", {**SMALL, "num_hidden_layers": 6, "hybrid_override_pattern": "M-M*E-",
                    "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2,
                    "n_routed_experts": 4, "moe_intermediate_size": 48,
                    "moe_shared_expert_intermediate_size": 64, "n_group": 1, "topk_group": 1}),
    ("lfm2", {**SMALL, "hidden_size": 384, "block_auto_adjust_ff_dim": True, "full_attn_idxs": [1, 4]}),
    ("lfm2_moe", {**SMALL_MOE, "hidden_size": 384, "num_experts": 4, "num_dense_layers": 2,
                  "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"]}),
    ("gemma3n_text", {**SMALL, "num_hidden_layers": 10, "num_kv_shared_layers": 4, "laurel_rank": 8,
                      "intermediate_size": [320] * 10}),
    ("gemma4_text", {**SMALL, "num_hidden_layers": 12, "num_kv_shared_layers": 5, "attention_k_eq_v": True,
                     "num_global_key_value_heads": 2, "global_head_dim": 64, "use_double_wide_mlp": True}),
    ("gemma4_text", {**SMALL, "enable_moe_block": True, "num_experts": 8, "moe_intermediate_size": 48,
                     "top_k_experts": 2}),
    ("zamba2", {}),
    ("zamba2", {"num_mem_blocks": 2, "use_shared_attention_adapter": True, "add_bias_linear": True}),
    ("mimo_v2_flash", {}),
    ("mamba2", {"hidden_size": 128, "num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 2,
                "num_hidden_layers": 3, "vocab_size": 500}),
)  # fmt: skip


def parameters_of_class(model_type: str, fields: dict[str, Any]) -> int:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def our_parameters(model_type: str, fields: dict[str, Any]) -> int:
    arch = parse_architecture({"model_type": model_type, **fields})
    assert isinstance(arch, ModelArchitecture)
    return params_total(arch)


@pytest.mark.parametrize("model_type", DEFAULTS_ONLY)
def test_parameters_equal_the_class_when_only_the_type_is_given(model_type: str) -> None:
    assert our_parameters(model_type, {}) == parameters_of_class(model_type, {})


@pytest.mark.parametrize(
    ("model_type", "fields"), CHANGED, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CHANGED)]
)
def test_parameters_equal_the_class_when_its_numbers_are_changed(
    model_type: str, fields: dict[str, Any]
) -> None:
    assert our_parameters(model_type, fields) == parameters_of_class(model_type, fields)


@pytest.mark.parametrize("name", ["Whisper", "Bart", "T5", "MT5"])
def test_parameters_equal_the_class_when_there_is_an_encoder(name: str) -> None:
    cls = getattr(transformers, f"{name}ForConditionalGeneration")
    with torch.device("meta"):
        model = cls(cls.config_class())
    assert our_parameters(name.lower(), {}) == sum(parameter.numel() for parameter in model.parameters())


def test_recorded_defaults_are_those_of_the_classes() -> None:
    from tests.octavo.generate_class_defaults import TARGET, render

    for module, text in render().items():
        assert (TARGET / f"{module}.py").read_text() == text, "run tests/octavo/generate_class_defaults.py"
