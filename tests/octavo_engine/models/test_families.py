"""Each model type against transformers, token by token, on a tiny random checkpoint of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo_engine.llm_engine import LLMEngine
from tests.octavo_engine.oracle import (
    count_near_ties,
    generate,
    load_engine,
    load_oracle,
    oracle_greedy,
    random_prompts,
    request,
    run_until_idle,
    save_tiny_model,
    tokens_of,
)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
    "original_max_position_embeddings": 512,
}
QWEN3_EXPERTS = {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
LLAMA4 = {
    "head_dim": 16,
    "intermediate_size": 48,
    "intermediate_size_mlp": 96,
    "num_local_experts": 4,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 20,
    "floor_scale": 16,
    "attn_scale": 0.5,
}

CASES = [
    pytest.param("LlamaConfig", {}, id="llama"),
    pytest.param("LlamaConfig", {"tie_word_embeddings": True, "head_dim": 32}, id="llama tied"),
    pytest.param("LlamaConfig", {"attention_bias": True, "mlp_bias": True}, id="llama with biases"),
    pytest.param("LlamaConfig", {"num_key_value_heads": 4}, id="llama with a KV head each"),
    pytest.param("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}, id="llama3 rope"),
    pytest.param(
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
        id="linear rope",
    ),
    pytest.param(
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
        id="dynamic rope, own context",
    ),
    pytest.param("LlamaConfig", {"rope_parameters": YARN_ROPE}, id="yarn rope"),
    pytest.param("MistralConfig", {"sliding_window": None}, id="mistral"),
    pytest.param("MistralConfig", {"sliding_window": 20}, id="mistral with a window"),
    pytest.param("Qwen2Config", {}, id="qwen2"),
    pytest.param(
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 2},
        id="qwen2 with windows above layer 2",
    ),
    pytest.param("Qwen3Config", {"head_dim": 16}, id="qwen3"),
    pytest.param("MixtralConfig", {"num_local_experts": 4}, id="mixtral"),
    pytest.param(
        "Qwen3MoeConfig",
        {**QWEN3_EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [1]},
        id="qwen3 moe with a dense layer",
    ),
    pytest.param("Qwen3MoeConfig", {**QWEN3_EXPERTS, "decoder_sparse_step": 2}, id="qwen3 moe every second"),
    pytest.param("DeepseekV2Config", LATENT, id="deepseek v2"),
    pytest.param(
        "DeepseekV2Config",
        {**LATENT, "q_lora_rank": None, "n_shared_experts": 1, "attention_bias": True},
        id="deepseek v2 without query compression",
    ),
    pytest.param(
        "DeepseekV2Config",
        {
            **LATENT,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 16.0,
            "rope_parameters": {**YARN_ROPE, "mscale": 0.7, "mscale_all_dim": 1.2},
        },
        id="deepseek v2 with expert groups and yarn",
    ),
    pytest.param("SmolLM3Config", {"no_rope_layers": [1, 1, 1, 0]}, id="smollm3"),
    pytest.param("Phi3Config", {"sliding_window": None}, id="phi3"),
    pytest.param("Phi3Config", {"sliding_window": 20, "partial_rotary_factor": 0.5}, id="phi3 partial"),
    pytest.param(
        "Phi3Config",
        {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 512},
        id="phi3 long rope, short factors",
    ),
    pytest.param("Llama4TextConfig", LLAMA4, id="llama4"),
    pytest.param(
        "Llama4TextConfig",
        {
            **LLAMA4,
            "num_experts_per_tok": 2,
            "moe_layers": [0, 1, 3],
            "no_rope_layers": [0, 1, 1, 1],
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "attention_bias": True,
            "attention_chunk_size": 16,
        },
        id="llama4 without norms, two experts, biases, chunks of a block",
    ),
    pytest.param(
        "Llama4TextConfig",
        {**LLAMA4, "no_rope_layers": [1, 1, 1, 1]},
        id="llama4, all layers in chunks",
    ),
    pytest.param(
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": 20, "query_pre_attn_scalar": 32},
        id="gemma2",
    ),
    pytest.param(
        "Gemma2Config",
        {
            "head_dim": 16,
            "sliding_window": 20,
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 4.0,
            "final_logit_softcapping": 5.0,
        },
        id="gemma2 with caps that are reached",
    ),
    pytest.param(
        "Gemma3TextConfig",
        {
            "head_dim": 16,
            "sliding_window": 20,
            "query_pre_attn_scalar": 32,
            "num_hidden_layers": 8,
            "final_logit_softcapping": 5.0,
        },
        id="gemma3",
    ),
]


@pytest.mark.parametrize(("config_class", "changes"), CASES)
def test_family_generates_what_transformers_generates(
    tmp_path: Path, config_class: str, changes: dict[str, Any]
) -> None:
    model_dir = save_tiny_model(tmp_path, config_class, **changes)
    oracle = load_oracle(model_dir)
    prompts = random_prompts(6)
    requests = [request(str(index), prompt, 20) for index, prompt in enumerate(prompts)]
    engine = load_engine(model_dir, max_num_batched_tokens=23)
    outputs = generate(engine, requests)
    near_ties = 0
    for prompt, output in zip(prompts, outputs, strict=True):
        if output != oracle_greedy(oracle, prompt, 20):
            near_ties += count_near_ties(oracle, prompt, output)
    assert near_ties == 0
    assert len(set(map(tuple, outputs))) > 1, "a model that always says the same proves nothing"
    assert_same_logprobs(oracle, engine, list(prompts[-1]))
    assert generate(engine, requests, preempting=True) == outputs
    assert engine.stats().preemptions > 20 and engine.stats().cached_prompt_tokens > 0
    engine.check_integrity()


def assert_same_logprobs(oracle: Any, engine: LLMEngine, prompt: list[int]) -> None:
    """What comes of the scores after the choice of the first (caps on them) shows here only."""
    (events,) = run_until_idle(engine, [request("scored", prompt, 8, logprobs=0)]).values()
    output = tokens_of(events)
    with torch.no_grad():
        scores = oracle(torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1].float()
    expected = torch.log_softmax(scores, dim=-1)[range(len(output)), output]
    found = [drawn.logprob for event in events for drawn in event.logprobs]
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("config_class", "changes"), CASES)
def test_family_runs_in_sixteen_bits_and_agrees_mostly(
    tmp_path: Path, config_class: str, changes: dict[str, Any], dtype: str
) -> None:
    model_dir = save_tiny_model(tmp_path, config_class, **changes)
    requests = [request(str(index), prompt, 4) for index, prompt in enumerate(random_prompts(6))]
    exact = generate(load_engine(model_dir), requests)
    engine = load_engine(model_dir, dtype=dtype)
    rounded = generate(engine, requests)
    assert (engine.facts.dtype, engine.facts.kv_dtype) == (dtype, dtype)
    assert sum(one[0] == other[0] for one, other in zip(exact, rounded, strict=True)) >= 4
