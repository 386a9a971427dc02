"""Latent attention: what is kept of a token, how the plan sees it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.kv_sizing import block_bytes
from octavo.weights import weights_bytes
from octavo_engine.errors import UnsupportedModel
from octavo_engine.execution.kv_cache import KVCache, KVCacheShape, group_layers
from octavo_engine.models.decoder_config import parse_decoder_config
from octavo_engine.models.experts_config import ExpertGroups
from octavo_engine.models.mixture import Router
from tests.octavo_engine.models.test_families import LATENT, LLAMA4, QWEN3_EXPERTS
from tests.octavo_engine.oracle import load_engine, save_tiny_model

DEEPSEEK_V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "attention_bias": False,
    "aux_loss_alpha": 0.001,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v2",
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 102400,
}


def test_published_configuration_is_read() -> None:
    config = parse_decoder_config(DEEPSEEK_V2_LITE)
    assert [layer.experts is None for layer in config.layers] == [True] + [False] * 26
    experts, latent = config.layers[1].experts, config.latent
    assert experts is not None and latent is not None
    assert (experts.num_experts, experts.num_chosen, experts.shared_size) == (64, 6, 2816)
    assert (latent.query_rank, latent.cached_dim, latent.query_dim) == (None, 576, 192)
    assert config.attention_scale == pytest.approx(192**-0.5 * (0.0707 * 3.688879 + 1) ** 2, rel=1e-5)


@pytest.mark.parametrize(
    ("config_class", "changes"),
    [
        pytest.param("LlamaConfig", {}, id="llama"),
        pytest.param("Qwen3MoeConfig", QWEN3_EXPERTS, id="qwen3 moe"),
        pytest.param("DeepseekV2Config", LATENT, id="deepseek v2"),
        pytest.param("Llama4TextConfig", LLAMA4, id="llama4"),
        pytest.param(
            "Gemma2Config", {"head_dim": 16, "sliding_window": 20, "query_pre_attn_scalar": 16}, id="gemma2"
        ),
    ],
)
def test_blocks_and_weights_take_the_bytes_that_the_plan_counts(
    tmp_path: Path, config_class: str, changes: dict[str, Any]
) -> None:
    folder = save_tiny_model(tmp_path, config_class, **changes)
    architecture = parse_architecture(json.loads((folder / "config.json").read_text()))
    assert isinstance(architecture, ModelArchitecture)
    engine = load_engine(folder, block_size=8)
    assert engine.facts.block_bytes == block_bytes(
        architecture, kv_dtype="auto", dtype="float32", block_size=8
    )
    assert engine.facts.weights_bytes == weights_bytes(architecture, dtype="float32")


def test_latent_block_holds_one_vector_for_each_token_and_layer() -> None:
    shape = KVCacheShape(
        groups=group_layers([None] * 27),
        block_size=16,
        num_kv_heads=1,
        key_dim=576,
        value_dim=0,
        dtype=torch.bfloat16,
    )
    assert shape.block_bytes == 27 * 16 * 576 * 2
    architecture = parse_architecture(DEEPSEEK_V2_LITE)
    assert isinstance(architecture, ModelArchitecture)
    assert shape.block_bytes == block_bytes(architecture, kv_dtype="auto", block_size=16)
    cache = KVCache(shape, num_blocks=3, device=torch.device("cpu"))
    allocated = {tensor.data_ptr(): tensor.nbytes for tensor in (*cache.keys, *cache.values)}
    assert sum(allocated.values()) == 4 * shape.block_bytes


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kv_lora_rank": None}, "kv_lora_rank: missing"),
        ({"v_head_dim": "wide"}, "v_head_dim"),
        ({"topk_method": "noaux_tc"}, "topk_method: 'noaux_tc'"),
        ({"scoring_func": "sigmoid"}, "scoring_func: 'sigmoid'"),
        ({"norm_topk_prob": True}, "norm_topk_prob"),
        ({"topk_method": "group_limited_greedy", "n_group": 7}, "n_group: 64 experts in 7 groups"),
        ({"topk_method": "group_limited_greedy", "n_group": 32}, "num_experts_per_tok"),
        ({"first_k_dense_replace": -1}, "first_k_dense_replace"),
    ],
)
def test_what_would_change_the_result_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        parse_decoder_config({**DEEPSEEK_V2_LITE, **changes})


def test_router_chooses_within_the_groups_of_the_best_experts() -> None:
    logits = torch.tensor([[5.0, 0.0, 4.0, 3.9, 4.5, 1.0]])  # groups (5, 0), (4, 3.9), (4.5, 1)
    router = Router(
        weight=logits.T.contiguous(),
        num_chosen=3,
        normalized=True,
        scale=2.0,
        groups=ExpertGroups(count=3, num_chosen=2),
    )
    weights, experts = router(torch.ones(1, 1))
    assert experts.tolist() == [[0, 4, 5]]
    assert float(weights.sum()) == pytest.approx(2.0)
