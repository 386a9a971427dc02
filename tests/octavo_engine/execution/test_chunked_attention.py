"""Chunked attention against transformers, across the borders of chunks, however the text is computed.

Chunks of 20 tokens end inside of blocks of 16, chunks of 16 with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo_engine.llm_engine import LLMEngine
from tests.octavo_engine.models.test_families import LLAMA4
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

NUM_TOKENS = 24
LENGTHS = (1, 15, 16, 19, 20, 21, 39, 40, 41, 70)


@pytest.fixture(scope="module", params=[16, 20])
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama4")
    return save_tiny_model(folder, "Llama4TextConfig", **{**LLAMA4, "attention_chunk_size": request.param})


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Any:
    return load_oracle(model_dir)


@pytest.fixture(scope="module")
def prompted(oracle: Any) -> list[Prompted]:
    """Beginnings of one text, so that each can go on from another's blocks."""
    (text,) = random_prompts(1, shortest=max(LENGTHS))
    prompts = [text[:length] for length in LENGTHS]
    return [Prompted(prompt, oracle_greedy(oracle, prompt, NUM_TOKENS)) for prompt in prompts]


def assert_as_expected(
    engine: LLMEngine, oracle: Any, prompted: list[Prompted], *, preempting: bool = False
) -> None:
    requests = [request(str(index), item.prompt, len(item.expected)) for index, item in enumerate(prompted)]
    outputs = generate(engine, requests, preempting=preempting)
    near_ties = sum(
        count_near_ties(oracle, item.prompt, output)
        for item, output in zip(prompted, outputs, strict=True)
        if output != item.expected
    )
    assert near_ties == 0
    assert engine.stats().blocks_referenced == 0


@pytest.mark.parametrize("preempting", [False, True], ids=["undisturbed", "preempted at every step"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_text_across_chunks_is_transformers_alone_and_batched(
    model_dir: Path, oracle: Any, prompted: list[Prompted], chunk: int, caching: bool, preempting: bool
) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=chunk, enable_prefix_caching=caching)
    if preempting:  # each token may take as many steps as the text is long
        prompted = [Prompted(item.prompt, item.expected[:6]) for item in prompted[:: 1 if caching else 5]]
    assert_as_expected(engine, oracle, prompted[-1:], preempting=preempting)
    assert_as_expected(engine, oracle, prompted, preempting=preempting)
    stats = engine.stats()
    assert (stats.cached_prompt_tokens > 0) == caching
    assert (stats.preemptions >= 6) == preempting


@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
def test_text_across_chunks_is_transformers_when_the_pool_makes_sequences_give_way(
    model_dir: Path, oracle: Any, prompted: list[Prompted], drafts: int
) -> None:
    engine = load_engine(
        model_dir, max_num_batched_tokens=7, num_kv_blocks=44, block_size=4, speculative_ngram=drafts
    )
    expect_short_outputs(engine)
    assert_as_expected(engine, oracle, prompted[:-1])
    assert engine.stats().preemptions > 0
