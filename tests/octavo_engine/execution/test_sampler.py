"""Tokens are drawn from exactly the distribution that the parameters leave, row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo_engine.execution.logits import SampleRow, adjust_logits
from octavo_engine.execution.philox import philox4x32, uniform
from octavo_engine.execution.sampler import sample
from octavo_engine.requests import SamplingParams


def row(
    seed: int = 0, *, prompt: tuple[int, ...] = (1,), output: tuple[int, ...] = (), **params: Any
) -> SampleRow:
    return SampleRow(
        params=SamplingParams(max_tokens=100, **params),
        seed=seed,
        prompt_token_ids=prompt,
        output_token_ids=output,
        end_token_ids=frozenset({2}),
    )


def drawn(scores: list[float], count: int = 4000, **params: Any) -> dict[int, float]:
    """Shares of the tokens drawn at `count` positions."""
    logits = torch.tensor([scores] * count)
    rows = [row(7, prompt=(1,) * (position + 1), **params) for position in range(count)]
    shares: dict[int, float] = {}
    for result in sample(logits, rows):
        assert result.token_id is not None
        shares[result.token_id] = shares.get(result.token_id, 0.0) + 1 / count
    return shares


def assert_shares(found: dict[int, float], expected: dict[int, float]) -> None:
    assert set(found) == set(expected)
    for token_id, share in expected.items():
        assert found[token_id] == pytest.approx(share, abs=4 * math.sqrt(share / 4000))


SCORES = [math.log(share) for share in (0.1, 0.5, 0.15, 0.25)]
SQUARED = {0: 1 / 34.5, 1: 25 / 34.5, 2: 2.25 / 34.5, 3: 6.25 / 34.5}
"""Shares at temperature 0.5."""


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({}, {0: 0.1, 1: 0.5, 2: 0.15, 3: 0.25}, id="plain"),
        pytest.param({"temperature": 0.5}, SQUARED, id="cold"),
        pytest.param({"top_k": 2}, {1: 2 / 3, 3: 1 / 3}, id="top-k"),
        pytest.param({"top_k": 1}, {1: 1.0}, id="top-k of one"),
        pytest.param({"top_k": 10**9}, {0: 0.1, 1: 0.5, 2: 0.15, 3: 0.25}, id="top-k beyond the vocabulary"),
        pytest.param({"top_p": 0.7}, {1: 2 / 3, 3: 1 / 3}, id="top-p"),
        pytest.param({"top_p": 0.01}, {1: 1.0}, id="top-p keeps at least one"),
        pytest.param({"top_k": 3, "top_p": 0.8}, {1: 2 / 3, 3: 1 / 3}, id="top-p of what top-k leaves"),
        pytest.param({"min_p": 0.4}, {1: 2 / 3, 3: 1 / 3}, id="min-p"),
        pytest.param({"min_p": 1.0}, {1: 1.0}, id="min-p of one"),
        pytest.param({"temperature": 0.0}, {1: 1.0}, id="greedy"),
        pytest.param({"logit_bias": {1: -100.0}}, {0: 0.2, 2: 0.3, 3: 0.5}, id="bias"),
    ],
)
def test_tokens_come_in_the_shares_that_the_parameters_leave(
    params: dict[str, Any], expected: dict[int, float]
) -> None:
    assert_shares(drawn(SCORES, **params), expected)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**64 - 1), vocab=st.integers(100, 3000), top_p=st.floats(0.01, 0.999))
def test_top_p_over_a_flat_vocabulary_is_that_of_a_full_sort(seed: int, vocab: int, top_p: float) -> None:
    generator = torch.Generator().manual_seed(seed % 2**31)
    scores = torch.randn(vocab, generator=generator)
    shares, order = torch.softmax(scores.double(), 0).sort(descending=True)
    before = shares.cumsum(0) - shares
    allowed = set(order[before < top_p + 1e-9].tolist())
    result = sample(scores[None].clone(), [row(seed, top_p=top_p)])[0]
    assert result.token_id in allowed


def test_draw_depends_on_seed_and_position_and_not_on_the_batch() -> None:
    scores = torch.randn(1, 500, generator=torch.Generator().manual_seed(3))
    alone = [sample(scores.clone(), [row(5, output=(9,) * n)])[0].token_id for n in range(20)]
    others = [row(seed, temperature=0.5 + seed, top_k=seed) for seed in range(4)]
    among = [
        sample(scores.repeat(5, 1), [*others[:2], row(5, output=(9,) * n), *others[2:]])[2].token_id
        for n in range(20)
    ]
    assert among == alone
    assert len(set(alone)) > 10
    assert alone != [sample(scores.clone(), [row(6, output=(9,) * n)])[0].token_id for n in range(20)]


def test_random_words_are_those_of_the_published_vectors() -> None:
    all_ones = 0xFFFFFFFF
    assert philox4x32((0,) * 4, (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((all_ones,) * 4, (all_ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox4x32((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_random_numbers_lie_between_zero_and_one(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


def test_row_with_scores_that_are_not_finite_gives_no_token_and_spoils_no_other() -> None:
    logits = torch.tensor([[0.0, math.nan, 1.0], [0.0, 3.0, 1.0], [math.inf, 0.0, 0.0]])
    results = sample(logits, [row(temperature=0.0), row(temperature=0.0), row()])
    assert [result.token_id for result in results] == [None, 1, None]


def test_forbidden_score_is_no_error() -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    assert sample(logits, [row(temperature=0.0)])[0].token_id == 2


def test_log_probabilities_are_the_models_own() -> None:
    logits = torch.tensor([SCORES])
    result = sample(logits, [row(temperature=0.0, logit_bias={0: 50.0}, logprobs=2)])[0]
    assert result.token_id == 0
    assert result.logprob is not None
    assert result.logprob.logprob == pytest.approx(math.log(0.1), abs=1e-5)
    assert [token_id for token_id, _ in result.logprob.top] == [1, 3]
    none_besides = sample(torch.tensor([SCORES]), [row(temperature=0.0, logprobs=0)])[0]
    assert none_besides.logprob is not None and none_besides.logprob.top == ()


def test_end_ids_cannot_be_drawn_before_min_tokens() -> None:
    scores = [[0.0, 0.0, 9.0, 1.0]]
    held = row(temperature=0.0, min_tokens=3, output=(3, 3))
    free = row(temperature=0.0, min_tokens=3, output=(3, 3, 3))
    assert sample(torch.tensor(scores), [held])[0].token_id == 3
    assert sample(torch.tensor(scores), [free])[0].token_id == 2


def test_repetition_penalty_counts_prompt_and_output() -> None:
    scores = torch.tensor([4.0, -4.0, 4.0, 4.0])
    adjust_logits(scores, row(repetition_penalty=2.0, prompt=(0, 1), output=(2, 2)))
    assert scores.tolist() == [2.0, -8.0, 2.0, 4.0]


def test_presence_and_frequency_penalties_count_output_only() -> None:
    scores = torch.zeros(4)
    adjust_logits(scores, row(presence_penalty=1.0, frequency_penalty=0.5, prompt=(0,), output=(2, 2, 3)))
    assert scores.tolist() == [0.0, 0.0, -2.0, -1.5]
