"""GGUF files generate what the checkpoint does that they were made of; what is not understood is refused."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from octavo_engine.errors import ModelFileError, UnsupportedModel
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.models.decoder_config import parse_decoder_config
from octavo_engine.models.gguf_config import read_gguf_config
from octavo_engine.models.rope import RotaryEmbedding
from tests.octavo_engine.models.gguf_files import round_matrices, write_gguf
from tests.octavo_engine.models.test_families import QWEN3_EXPERTS
from tests.octavo_engine.oracle import (
    count_near_ties,
    generate,
    load_engine,
    load_oracle,
    oracle_greedy,
    random_prompts,
    request,
    save_tiny_model,
)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
GEMMA = {"head_dim": 32, "sliding_window": 20}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("checkpoint"), num_hidden_layers=2)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        pytest.param(Kind.F32, {}, id="float32"),
        pytest.param(Kind.F16, {"attention_bias": True, "mlp_bias": True}, id="float16 with biases"),
        pytest.param(Kind.BF16, {"num_key_value_heads": 4}, id="bfloat16"),
        pytest.param(Kind.Q8_0, {"tie_word_embeddings": True}, id="8 bits, tied"),
        pytest.param(Kind.Q4_0, {}, id="4 bits"),
    ],
)
def test_file_generates_what_its_rounded_checkpoint_does(
    tmp_path: Path, kind: Kind, changes: dict[str, Any]
) -> None:
    folder = save_tiny_model(tmp_path / "checkpoint", num_hidden_layers=2, **changes)
    path = write_gguf(folder, tmp_path / "tiny.gguf", kind=kind)
    round_matrices(folder, kind)
    assert_generates_as(load_oracle(folder), load_engine(path, max_num_batched_tokens=23))


@pytest.mark.parametrize(
    ("config_class", "changes"),
    [
        pytest.param("MistralConfig", {"sliding_window": None}, id="mistral"),
        pytest.param("MixtralConfig", {"num_local_experts": 4}, id="mixtral"),
        pytest.param("Qwen2Config", {"tie_word_embeddings": True}, id="qwen2"),
        pytest.param("Qwen3Config", {"head_dim": 32}, id="qwen3"),
        pytest.param("Qwen3MoeConfig", {**QWEN3_EXPERTS, "norm_topk_prob": True}, id="qwen3 moe"),
        pytest.param("SmolLM3Config", {"num_hidden_layers": 4}, id="smollm3"),
        pytest.param("Phi3Config", {"sliding_window": 20}, id="phi3"),
        pytest.param(
            "Phi3Config", {"sliding_window": None, "partial_rotary_factor": 0.5}, id="phi3, partly rotated"
        ),
        pytest.param("Gemma2Config", {**GEMMA, "query_pre_attn_scalar": 32}, id="gemma2"),
        pytest.param(
            "Gemma2Config",
            {**GEMMA, "query_pre_attn_scalar": 16, "num_hidden_layers": 46, "initializer_range": 0.05},
            id="gemma2 of 46 layers",
        ),
        pytest.param(
            "Gemma3TextConfig", {**GEMMA, "query_pre_attn_scalar": 32, "num_hidden_layers": 6}, id="gemma3"
        ),
        pytest.param(
            "Gemma3TextConfig",
            {
                **GEMMA,
                "query_pre_attn_scalar": 32,
                "num_hidden_layers": 6,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 8.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                },
            },
            id="gemma3 with scaling",
        ),
    ],
)
def test_architecture_generates_what_its_checkpoint_does(
    tmp_path: Path, config_class: str, changes: dict[str, Any]
) -> None:
    folder = save_tiny_model(tmp_path / "checkpoint", config_class, **{"num_hidden_layers": 2, **changes})
    path = write_gguf(folder, tmp_path / "tiny.gguf")
    assert_generates_as(load_oracle(folder), load_engine(path, max_num_batched_tokens=23))


def assert_generates_as(oracle: Any, engine: LLMEngine) -> None:
    prompts = random_prompts(4)
    requests = [request(str(index), prompt, 16) for index, prompt in enumerate(prompts)]
    outputs = generate(engine, requests)
    near_ties = 0
    for prompt, output in zip(prompts, outputs, strict=True):
        if output != oracle_greedy(oracle, prompt, 16):
            near_ties += count_near_ties(oracle, prompt, output)
    assert near_ties == 0
    assert len(set(map(tuple, outputs))) > 1
    assert generate(engine, requests, preempting=True) == outputs


def test_frequencies_of_llama3_come_from_its_divisors(tmp_path: Path) -> None:
    def frequencies(config: dict[str, object]) -> torch.Tensor:
        rope = parse_decoder_config(config).layers[0].rope
        assert rope is not None
        cos, sin = RotaryEmbedding(rope, max_model_len=512, device=torch.device("cpu")).cos_sin(
            torch.arange(0, 512, 37), torch.float32
        )
        return torch.cat((cos, sin))

    folder = save_tiny_model(tmp_path / "checkpoint", num_hidden_layers=1)
    plain = read_gguf_config(GGUFFile(write_gguf(folder, tmp_path / "plain.gguf")))
    rope = parse_decoder_config({**plain, "rope_scaling": LLAMA3}).layers[0].rope
    assert rope is not None
    scaled = RotaryEmbedding(rope, max_model_len=512, device=torch.device("cpu"))
    unscaled = 1.0 / (10000.0 ** (torch.arange(0, 16, 2) / 16))
    divisors = (unscaled / scaled.inverse_frequencies).numpy().astype(np.float32)
    path = write_gguf(folder, tmp_path / "scaled.gguf", extra={"rope_freqs.weight": divisors})
    torch.testing.assert_close(
        frequencies(read_gguf_config(GGUFFile(path))),
        frequencies({**plain, "rope_scaling": LLAMA3}),
        atol=1e-4,
        rtol=0,
    )
    assert load_engine(path).facts.max_model_len == 512


@pytest.mark.parametrize(
    ("kind", "dtype"), [(Kind.BF16, "bfloat16"), (Kind.F16, "float16"), (Kind.Q8_0, "bfloat16")]
)
def test_type_served_by_default_follows_what_is_stored(
    checkpoint: Path, tmp_path: Path, kind: Kind, dtype: str
) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", kind=kind)
    assert load_engine(path, dtype="auto").facts.dtype == dtype


def test_ends_of_turns_end_a_text_too(checkpoint: Path, tmp_path: Path) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", metadata={"tokenizer.ggml.eot_token_id": 7})
    assert load_engine(path).facts.eos_token_ids == {2, 7}


def test_control_tokens_that_end_a_turn_end_a_text_though_no_field_says_so(
    checkpoint: Path, tmp_path: Path
) -> None:
    fields = {
        "tokenizer.ggml.tokens": ["<unk>", "<bos>", "<eos>", "<end_of_turn>", "<|end|>", "word"],
        "tokenizer.ggml.token_type": [2, 3, 3, 3, 1, 1],
    }
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", metadata=fields)
    assert load_engine(path).facts.eos_token_ids == {2, 3}


def test_folder_with_one_file_is_that_file_and_with_several_asks_which(
    checkpoint: Path, tmp_path: Path
) -> None:
    write_gguf(checkpoint, tmp_path / "a.gguf")
    prompt = [request("r", [5, 6, 7], 8)]
    assert generate(load_engine(tmp_path), prompt) == generate(load_engine(checkpoint), prompt)
    write_gguf(checkpoint, tmp_path / "b.gguf")
    with pytest.raises(ModelFileError, match=r"name one of a\.gguf, b\.gguf"):
        load_engine(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"llama.logit_scale": 2}, "llama.logit_scale: 2"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count: 8"),
        ({"llama.rope.scaling.type": "spiral"}, "spiral"),
        ({"llama.rope.scaling.type": "linear"}, "rope_scaling.factor"),
        ({"split.count": 3}, "split.count"),
    ],
)
def test_metadata_that_is_not_understood_is_refused_by_name(
    checkpoint: Path, tmp_path: Path, metadata: dict[str, Any], named: str
) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", metadata=metadata)
    with pytest.raises(UnsupportedModel, match=named):
        load_engine(path)


def test_other_architecture_is_refused_by_name(checkpoint: Path, tmp_path: Path) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", architecture="starcoder2")
    with pytest.raises(UnsupportedModel, match=r"general\.architecture: 'starcoder2'.*gemma2"):
        load_engine(path)


def test_experts_of_an_architecture_that_has_none_are_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path, "Qwen2Config", num_hidden_layers=1)
    path = write_gguf(folder, tmp_path / "tiny.gguf", metadata={"qwen2.expert_count": 8})
    with pytest.raises(UnsupportedModel, match=r"qwen2\.expert_count"):
        load_engine(path)


@pytest.mark.parametrize(("max_model_len", "frequencies"), [(64, "short"), (512, "long")])
def test_long_rope_of_phi3_comes_from_both_lists_of_divisors(
    tmp_path: Path, max_model_len: int, frequencies: str
) -> None:
    factors = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
    scaling = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    folder = save_tiny_model(
        tmp_path / "checkpoint",
        "Phi3Config",
        num_hidden_layers=1,
        rope_parameters=scaling,
        original_max_position_embeddings=64,
        sliding_window=None,
    )
    attention_factor = math.sqrt(1 + math.log(512 / 64) / math.log(64))
    path = write_gguf(
        folder,
        tmp_path / "tiny.gguf",
        metadata={"phi3.rope.scaling.attn_factor": attention_factor},
        extra={
            f"rope_factors_{name.removesuffix('_factor')}.weight": np.array(values, dtype=np.float32)
            for name, values in factors.items()
        },
    )
    prompt = [request("r", [5, 6, 7], 40)]
    text = generate(load_engine(folder, max_model_len=max_model_len), prompt)
    assert generate(load_engine(path, max_model_len=max_model_len), prompt) == text
    rope = parse_decoder_config(read_gguf_config(GGUFFile(path))).layers[0].rope
    assert rope is not None
    made = RotaryEmbedding(rope, max_model_len=max_model_len, device=torch.device("cpu"))
    expected = 10000.0 ** (-torch.arange(0, 16, 2) / 16) / torch.tensor(factors[f"{frequencies}_factor"])
    torch.testing.assert_close(made.inverse_frequencies, expected)


def test_unknown_tensor_is_refused_by_name(checkpoint: Path, tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, dtype=np.float32)}
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", extra=extra)
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_sinks\.weight"):
        load_engine(path)


@pytest.mark.parametrize("keep", [0.9, 0.01, 0.0], ids=["data cut", "header cut", "empty"])
def test_truncated_file_is_named(checkpoint: Path, tmp_path: Path, keep: float) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: truncated"):
        load_engine(path)


def test_missing_package_is_named(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelFileError, match="needs the package gguf"):
        load_engine(path)
