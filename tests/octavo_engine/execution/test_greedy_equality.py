"""Greedy text is that of transformers, whatever chunks, batches, preemptions and cache hits happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo_engine.llm_engine import LLMEngine
from tests.octavo_engine.oracle import (
    Prompted,
    count_near_ties,
    expect_short_outputs,
    generate,
    load_engine,
    load_oracle,
    oracle_greedy,
    random_prompts,
    request,
    save_tiny_model,
)

NUM_TOKENS = 30


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Any:
    return load_oracle(model_dir)


@pytest.fixture(scope="module")
def prompted(oracle: Any) -> list[Prompted]:
    return [Prompted(prompt, oracle_greedy(oracle, prompt, NUM_TOKENS)) for prompt in random_prompts(20)]


def assert_as_expected(oracle: Any, prompted: list[Prompted], outputs: list[list[int]]) -> None:
    """Identical but for near ties of the oracle's, which stay below 0.1 % of all tokens."""
    differing = [
        (item.prompt, output)
        for item, output in zip(prompted, outputs, strict=True)
        if output != item.expected
    ]
    near_ties = sum(count_near_ties(oracle, prompt, output) for prompt, output in differing)
    assert near_ties * 1000 < sum(map(len, outputs))


def all_at_once(engine: LLMEngine, prompted: list[Prompted], *, preempting: bool = False) -> list[list[int]]:
    requests = [request(f"p{i}", item.prompt, NUM_TOKENS) for i, item in enumerate(prompted)]
    return generate(engine, requests, preempting=preempting)


def one_by_one(engine: LLMEngine, prompted: list[Prompted]) -> list[list[int]]:
    return [
        generate(engine, [request(f"p{i}", item.prompt, NUM_TOKENS)])[0] for i, item in enumerate(prompted)
    ]


@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_greedy_text_is_transformers_one_by_one_and_all_at_once(
    model_dir: Path, oracle: Any, prompted: list[Prompted], chunk: int, caching: bool
) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=chunk, enable_prefix_caching=caching)
    assert_as_expected(oracle, prompted, one_by_one(engine, prompted))
    assert_as_expected(oracle, prompted, all_at_once(engine, prompted))
    assert (engine.stats().cached_prompt_tokens > 0) == caching


@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize(("chunk", "num_blocks"), [(7, 8), (64, 16)])
def test_greedy_text_is_transformers_when_sequences_are_preempted(
    model_dir: Path, oracle: Any, prompted: list[Prompted], chunk: int, num_blocks: int, caching: bool
) -> None:
    engine = load_engine(
        model_dir,
        max_num_batched_tokens=chunk,
        enable_prefix_caching=caching,
        num_kv_blocks=num_blocks,
    )
    expect_short_outputs(engine)
    assert_as_expected(oracle, prompted, all_at_once(engine, prompted))
    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.recomputed_tokens > 0
    assert stats.blocks_referenced == 0


def test_greedy_text_stays_the_same_when_every_step_preempts(
    model_dir: Path, oracle: Any, prompted: list[Prompted]
) -> None:
    engine = load_engine(model_dir, num_kv_blocks=60)
    outputs = all_at_once(engine, prompted, preempting=True)
    assert engine.stats().preemptions > 50
    assert_as_expected(oracle, prompted, outputs)


def test_sixteen_bit_engine_runs_and_agrees_mostly(model_dir: Path, prompted: list[Prompted]) -> None:
    engine = load_engine(model_dir, dtype="bfloat16")
    outputs = all_at_once(engine, prompted)
    first_tokens = sum(output[0] == item.expected[0] for output, item in zip(outputs, prompted, strict=True))
    assert engine.facts.kv_dtype == "bfloat16"
    assert first_tokens >= 16, f"only {first_tokens} of 20 first tokens agree with float32"
