"""Speculation changes how many steps a text takes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import EngineRequest
from octavo_engine.scheduling.ngram_drafts import NGramIndex
from tests.octavo_engine.oracle import generate, load_engine, request, run_until_idle, save_repeating_model

VOCAB_SIZE = 24
PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_repeating_model(tmp_path_factory.mktemp("llama"), vocab_size=VOCAB_SIZE)


@pytest.fixture(scope="module")
def plain(model_dir: Path) -> LLMEngine:
    return load_engine(model_dir)


@pytest.fixture(scope="module")
def drafting(model_dir: Path) -> LLMEngine:
    return load_engine(model_dir, speculative_ngram=4)


def requests(count: int = 8, **params: Any) -> list[EngineRequest]:
    return [request(f"r{n}", (*PROMPT, 3 + n), 24, **{"seed": n, **params}) for n in range(count)]


def test_draft_continues_what_followed_the_last_tokens_before() -> None:
    index = NGramIndex()
    text = [1, 2, 3, 4, 9, 2, 3]
    assert index.continuation(text, most=2) == (4, 9)
    text += [5, 8, 2, 3]
    assert index.continuation(text, most=3) == (5, 8, 2), "the latest occurrence counts"
    text += [4, 1, 2, 3]
    assert index.continuation(text, most=1) == (4,), "three equal tokens count more than two"
    assert index.continuation([*text, 7], most=4) == ()


def test_draft_of_a_loop_goes_round_in_it() -> None:
    assert NGramIndex().continuation([7, 7, 7], most=4) == (7, 7, 7, 7)


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="greedy"),
        pytest.param({"temperature": 0.6}, id="sampled"),
        pytest.param({"temperature": 0.8, "top_p": 0.7, "logprobs": 3}, id="top-p with logprobs"),
        pytest.param({"temperature": 0.8, "top_k": 3, "min_p": 0.1}, id="top-k and min-p"),
        pytest.param({"repetition_penalty": 1.05, "frequency_penalty": 0.1}, id="penalties"),
        pytest.param(
            {"min_tokens": 12, "ignore_eos": False, "stop_token_ids": frozenset({4, 9})}, id="stops"
        ),
    ],
)
def test_text_and_logprobs_are_the_same_in_fewer_steps(
    plain: LLMEngine, drafting: LLMEngine, params: dict[str, Any]
) -> None:
    before = drafting.stats()
    expected, found = (run_until_idle(engine, requests(**params)) for engine in (plain, drafting))
    after = drafting.stats()
    assert after.accepted_draft_tokens > before.accepted_draft_tokens
    assert plain.stats().draft_tokens == 0
    for name, events in expected.items():
        assert_same_end(events, found[name])
        tokens = [token_id for event in events for token_id in event.token_ids]
        assert tokens == [token_id for event in found[name] for token_id in event.token_ids]
        logprobs = [entry for event in events for entry in event.logprobs]
        others = [entry for event in found[name] for entry in event.logprobs]
        assert [entry.token_id for entry in others] == [entry.token_id for entry in logprobs]
        assert [entry.logprob for entry in others] == pytest.approx(
            [entry.logprob for entry in logprobs], abs=1e-4
        )


def assert_same_end(expected: Sequence[Any], found: Sequence[Any]) -> None:
    assert [event.finish_reason for event in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1].finish_reason == expected[-1].finish_reason


def test_right_drafts_of_one_step_come_in_one_event(drafting: LLMEngine) -> None:
    [events] = run_until_idle(drafting, [request("loop", PROMPT, 24, logit_bias={7: 100.0})]).values()
    assert max(len(event.token_ids) for event in events) == 5
    assert len(events) == 8
    assert sum(len(event.token_ids) for event in events) == 24


def test_drafts_preempt_nobody(model_dir: Path) -> None:
    """Two sequences fill the pool to its last block."""
    engine = load_engine(model_dir, num_kv_blocks=4, speculative_ngram=8)
    looping = [request(f"r{n}", [3 + n] * 8, 24, logit_bias={7: 100.0}) for n in range(2)]
    generate(engine, looping)
    assert engine.stats().preemptions == 0
    assert engine.stats().accepted_draft_tokens > 0


@dataclass
class EvenOnly:
    """Allows even ids; must only ever be asked about the sequence's own text."""

    asked: list[tuple[int, ...]] = field(default_factory=list)

    def allowed_after(self, output_token_ids: Sequence[int]) -> bytes:
        self.asked.append(tuple(output_token_ids))
        return bytes(token_id % 2 == 0 for token_id in range(VOCAB_SIZE))


def test_grammar_is_asked_about_true_text_only(plain: LLMEngine, drafting: LLMEngine) -> None:
    constraint = EvenOnly()
    wanted = request("even", PROMPT, 24)
    [expected] = generate(plain, [replace(wanted, constraint=EvenOnly())])
    accepted = drafting.stats().accepted_draft_tokens
    [output] = generate(drafting, [replace(wanted, constraint=constraint)])
    assert output == expected and all(token_id % 2 == 0 for token_id in output)
    assert constraint.asked == [tuple(output[:length]) for length in range(24)]
    assert drafting.stats().accepted_draft_tokens > accepted


def test_negative_draft_length_is_refused(model_dir: Path) -> None:
    with pytest.raises(InvalidSpec, match="speculative_ngram"):
        load_engine(model_dir, speculative_ngram=-1)
