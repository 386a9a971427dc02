"""SmolLM2's greedy text in float32 is that of transformers: real weights, real lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
)

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def model_dir() -> Path:
    support = pytest.importorskip("tests.support.sample_model", reason="the sample model cannot be made here")
    return Path(support.sample_model_dir())


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Any:
    return load_oracle(model_dir)


@pytest.fixture(scope="module")
def prompted(oracle: Any) -> list[Prompted]:
    prompts = random_prompts(20, vocab_size=49_000, shortest=2, longest=34)
    return [Prompted(prompt, oracle_greedy(oracle, prompt, NUM_TOKENS)) for prompt in prompts]


@pytest.mark.parametrize(
    ("chunk", "num_blocks", "preempts"),
    [
        pytest.param(1, 400, False, id="one token a step"),
        pytest.param(7, 400, False, id="chunks of 7"),
        pytest.param(64, 400, False, id="chunks of 64"),
        pytest.param(64, 8, True, id="preempted"),
    ],
)
def test_sample_model_generates_what_transformers_generates(
    model_dir: Path, oracle: Any, prompted: list[Prompted], chunk: int, num_blocks: int, preempts: bool
) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=chunk, num_kv_blocks=num_blocks, max_model_len=128)
    if preempts:
        expect_short_outputs(engine)
    requests = [request(f"p{i}", item.prompt, NUM_TOKENS) for i, item in enumerate(prompted)]
    outputs = generate(engine, requests)
    assert (engine.stats().preemptions > 0) == preempts
    near_ties = sum(
        count_near_ties(oracle, item.prompt, output)
        for item, output in zip(prompted, outputs, strict=True)
        if output != item.expected
    )
    assert near_ties * 1000 < sum(map(len, outputs))


def test_sample_model_generates_the_same_one_by_one(
    model_dir: Path, oracle: Any, prompted: list[Prompted]
) -> None:
    engine = load_engine(model_dir, max_model_len=128)
    for item in prompted:
        output = generate(engine, [request("alone", item.prompt, NUM_TOKENS)])[0]
        assert output == item.expected or count_near_ties(oracle, item.prompt, output) == 0
