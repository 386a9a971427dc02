"""Log-probabilities of a prompt's own tokens: those of transformers, however the prompt was computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import TokenEvent, TokenLogprob
from tests.octavo_engine.oracle import load_engine, load_oracle, request, run_until_idle, save_tiny_model

PROMPT = tuple(range(10, 110))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def expected(model_dir: Path) -> torch.Tensor:  # [positions, V]
    with torch.no_grad():
        logits = load_oracle(model_dir)(torch.tensor([PROMPT])).logits[0].float()
    return torch.log_softmax(logits, dim=-1)


def assert_expected(found: Sequence[TokenLogprob | None], expected: torch.Tensor) -> None:
    assert len(found) == len(PROMPT)
    assert found[0] is None
    for position, entry in enumerate(found[1:], start=1):
        assert entry is not None
        assert entry.token_id == PROMPT[position]
        row = expected[position - 1]
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-3)
        assert entry.top[0][1] == pytest.approx(float(row.max()), abs=1e-3)
        assert len(entry.top) == 2


def scored(request_id: str = "scored") -> object:
    return request(request_id, PROMPT, 3, prompt_logprobs=2)


@pytest.mark.parametrize("chunk", [1, 7, 64, 200])
def test_prompt_logprobs_do_not_depend_on_chunks_neighbours_or_the_cache(
    model_dir: Path, expected: torch.Tensor, chunk: int
) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=chunk)
    run_until_idle(engine, [request("earlier", PROMPT, 2)])
    items = [request("before", PROMPT[:40], 8), scored(), request("after", PROMPT, 4)]
    events = run_until_idle(engine, items)
    first, *others = events["scored"]
    assert_expected(first.prompt_logprobs, expected)
    assert first.num_cached_tokens == 0
    assert not any(event.prompt_logprobs for event in (*others, *events["before"], *events["after"]))


def run_preempting(engine: LLMEngine) -> list[TokenEvent]:
    events: list[TokenEvent] = []
    for _ in range(400):
        if not engine.has_work():
            return events
        events += engine.step(0.0)
        engine.preempt_newest()
    raise AssertionError("does not end")


def test_prompt_logprobs_survive_preemption_at_every_step(model_dir: Path, expected: torch.Tensor) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=24)
    assert engine.add_request(scored()) is None
    assert_expected(run_preempting(engine)[0].prompt_logprobs, expected)
    assert engine.stats().preemptions > 4


def test_scores_of_an_aborted_prompt_are_forgotten(model_dir: Path, expected: torch.Tensor) -> None:
    engine = load_engine(model_dir, max_num_batched_tokens=16)
    for _ in range(3):
        assert engine.add_request(scored("same")) is None
        engine.step(0.0)
        engine.step(0.0)
        engine.abort("same")
    assert engine.stats().blocks_referenced == 0
    assert_expected(run_until_idle(engine, [scored("same")])["same"][0].prompt_logprobs, expected)
