"""Rotary embeddings that depend on the context length, beyond the length a model was trained for.

`transformers` chooses frequencies by the length of each forward pass; this engine once, for the longest
context it serves, because cached keys cannot be turned again. A pass over a whole text of that length
is where both must agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_engine.models.decoder_config import parse_decoder_config
from tests.octavo_engine.models.test_decoder_config import BASE
from tests.octavo_engine.oracle import (
    count_near_ties,
    generate,
    load_engine,
    load_oracle,
    random_prompts,
    request,
    save_tiny_model,
)

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("config_class", "changes"),
    [
        pytest.param(
            "LlamaConfig", {"rope_parameters": DYNAMIC, "max_position_embeddings": 64}, id="dynamic"
        ),
        pytest.param(
            "Phi3Config",
            {
                "rope_parameters": LONG,
                "original_max_position_embeddings": 64,
                "max_position_embeddings": 128,
                "sliding_window": None,
            },
            id="long rope, long factors",
        ),
    ],
)
def test_text_beyond_the_trained_length_is_what_transformers_says(
    tmp_path: Path, config_class: str, changes: dict[str, Any]
) -> None:
    folder = save_tiny_model(tmp_path, config_class, **changes)
    engine = load_engine(folder, max_model_len=128, max_num_batched_tokens=23)
    prompts = random_prompts(2, shortest=100, longest=100)
    requests = [request(str(index), prompt, 28) for index, prompt in enumerate(prompts)]
    outputs = generate(engine, requests)
    oracle = load_oracle(folder)
    assert sum(count_near_ties(oracle, *pair) for pair in zip(prompts, outputs, strict=True)) == 0
    assert generate(engine, requests, preempting=True) == outputs


def test_dynamic_context_is_the_models_own_unless_more_is_asked_for(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path, rope_parameters=DYNAMIC, max_position_embeddings=64)
    assert load_engine(folder).facts.max_model_len == 64
    assert load_engine(folder, max_model_len=256).facts.max_model_len == 256
    with pytest.raises(InvalidSpec, match=r"max_model_len: 257.*256"):
        load_engine(folder, max_model_len=257)


def test_other_scalings_are_bound_to_the_declared_length() -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    assert parse_decoder_config({**BASE, "rope_scaling": scaling}).longest_context == 512
