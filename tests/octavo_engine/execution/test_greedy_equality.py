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
    save_repeating_model,
)

VOCAB_SIZE = 24
NUM_TOKENS = 30
NUM_TOKENS_OF_MATRIX = 16


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_repeating_model(tmp_path_factory.mktemp("llama"), vocab_size=VOCAB_SIZE)


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Any:
    return load_oracle(model_dir)


@pytest.fixture(scope="module")
def prompted(oracle: Any) -> list[Prompted]:
    return [
        Prompted(prompt, oracle_greedy(oracle, prompt, NUM_TOKENS))
        for prompt in random_prompts(20, vocab_size=VOCAB_SIZE)
    ]


def assert_as_expected(oracle: Any, prompted: list[Prompted], outputs: list[list[int]]) -> None:
    """Identical but for near ties of the oracle's, which stay below 0.1 % of all tokens."""
    differing = [
        (item.prompt, output)
        for item, output in zip(prompted, outputs, strict=True)
        if output != item.expected
    ]
    near_ties = sum(count_near_ties(oracle, prompt, output) for prompt, output in differing)
    assert near_ties * 1000 < sum(map(len, outputs))


def in_batches(
    engine: LLMEngine, prompted: list[Prompted], size: int, *, preempting: bool = False
) -> list[list[int]]:
    requests = [request(f"p{i}", item.prompt, len(item.expected)) for i, item in enumerate(prompted)]
    batches = [requests[start : start + size] for start in range(0, len(requests), size)]
    return [output for batch in batches for output in generate(engine, batch, preempting=preempting)]


@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("preempting", [False, True], ids=["undisturbed", "preempted at every step"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_greedy_text_is_transformers_one_by_one_and_sixteen_at_once(
    model_dir: Path,
    oracle: Any,
    prompted: list[Prompted],
    chunk: int,
    caching: bool,
    preempting: bool,
    drafts: int,
) -> None:
    engine = load_engine(
        model_dir,
        max_num_batched_tokens=chunk,
        enable_prefix_caching=caching,
        speculative_ngram=drafts,
    )
    short = [Prompted(item.prompt, item.expected[:NUM_TOKENS_OF_MATRIX]) for item in prompted[:16]]
    if preempting and chunk == 1:
        short = short[:5]  # each of their tokens takes as many steps as the text is long
    alone = short[::4]
    assert_as_expected(oracle, alone, in_batches(engine, alone, 1, preempting=preempting))
    assert_as_expected(oracle, short, in_batches(engine, short, 16, preempting=preempting))
    stats = engine.stats()
    assert (stats.cached_prompt_tokens > 0) == (caching and len(short) == 16)
    assert (stats.preemptions >= NUM_TOKENS_OF_MATRIX) == preempting
    assert (stats.accepted_draft_tokens > 0) == (drafts > 0 and chunk > 1)
    assert stats.blocks_referenced == 0


@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize(("chunk", "num_blocks"), [(7, 8), (64, 16)])
def test_greedy_text_is_transformers_when_the_pool_makes_sequences_give_way(
    model_dir: Path,
    oracle: Any,
    prompted: list[Prompted],
    chunk: int,
    num_blocks: int,
    caching: bool,
    drafts: int,
) -> None:
    engine = load_engine(
        model_dir,
        max_num_batched_tokens=chunk,
        enable_prefix_caching=caching,
        num_kv_blocks=num_blocks,
        speculative_ngram=drafts,
    )
    expect_short_outputs(engine)
    assert_as_expected(oracle, prompted, in_batches(engine, prompted, 16))
    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.recomputed_tokens > 0
    assert stats.blocks_referenced == 0


def test_sixteen_bit_engine_runs_and_agrees_mostly(model_dir: Path, prompted: list[Prompted]) -> None:
    engine = load_engine(model_dir, dtype="bfloat16")
    outputs = in_batches(engine, prompted, 16)
    first_tokens = sum(output[0] == item.expected[0] for output, item in zip(outputs, prompted, strict=True))
    assert engine.facts.kv_dtype == "bfloat16"
    assert first_tokens >= 16, f"only {first_tokens} of 20 first tokens agree with float32"
