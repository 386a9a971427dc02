"""Bytes per token of configurations that others read wrongly: null fields, head sizes, shared heads."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.kv_sizing import kv_bytes_per_token

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 6144,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_hidden_layers": 56,
    "vocab_size": 32000,
    "intermediate_size": 16384,
    "num_local_experts": 8,
    "torch_dtype": "bfloat16",
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "torch_dtype": "bfloat16",
}
QWEN3 = {**LLAMA, "model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "head_dim": 128}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            {**MIXTRAL, "head_dim": None}, 2 * 56 * 8 * 128 * 2, id="null head size is the quotient"
        ),
        pytest.param(MIXTRAL, 229_376, id="absent head size is the quotient"),
        pytest.param({**MIXTRAL, "num_key_value_heads": None}, 1_376_256, id="null: a KV head for each head"),
        pytest.param(QWEN3, 147_456, id="stated head size, which is not the quotient"),
        pytest.param(LLAMA, 131_072, id="heads that share keys and values"),
    ],
)
def test_bytes_per_token_are_those_of_the_real_cache(config: dict[str, Any], expected: int) -> None:
    arch = parse_architecture(config)
    assert isinstance(arch, ModelArchitecture)
    assert kv_bytes_per_token(arch, kv_dtype="bf16") == expected
    assert kv_bytes_per_token(arch, kv_dtype="fp8") == expected / 2
