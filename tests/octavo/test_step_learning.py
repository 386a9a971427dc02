"""Step costs are learned from what engines report, and nothing that is reported can lead them astray."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.step_learning import LEAST_FACTOR, MOST_FACTOR, LearnedCosts, StepSample, learn, start_learning
from octavo.step_model import StepCosts

PRIOR = StepCosts(
    base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
)
TRUE = StepCosts(
    base_seconds=0.03, prefill_token_seconds=1.2e-4, context_token_seconds=8e-7, sequence_seconds=3e-4
)
"""What the engine of these tests really costs: factors 1.5, 0.6, 1.6 and 3."""


def sample(
    draw: random.Random, *, context: tuple[float, float] = (200, 1500), noise: float = 0.0, stall: float = 1.0
) -> StepSample:
    steps = draw.uniform(50, 300)
    prefill, sequences = draw.uniform(0, 200), draw.uniform(1, 40)
    tokens = sequences * draw.uniform(*context)
    seconds = TRUE.step_seconds(prefill_tokens=prefill, context_tokens=tokens, sequences=sequences)
    return StepSample(
        steps=steps,
        seconds=steps * seconds * stall * (1 + draw.gauss(0, noise)),
        prefill_tokens=steps * prefill,
        context_tokens=steps * tokens,
        sequences=steps * sequences,
    )


def taught(number: int, **kinds: object) -> LearnedCosts:
    draw, known = random.Random(7), start_learning(PRIOR)
    for _ in range(number):
        known = learn(known, sample(draw, **kinds))  # type: ignore[arg-type]
    return known


def test_costs_are_learned_when_the_load_varies() -> None:
    found = taught(300, noise=0.05).costs
    assert found.base_seconds == pytest.approx(TRUE.base_seconds, rel=0.1)
    assert found.prefill_token_seconds == pytest.approx(TRUE.prefill_token_seconds, rel=0.2)
    assert found.context_token_seconds == pytest.approx(TRUE.context_token_seconds, rel=0.2)
    assert found.sequence_seconds == pytest.approx(TRUE.sequence_seconds, rel=0.3)


def test_steps_are_foretold_within_a_few_per_cent_after_ten_minutes() -> None:
    found, draw = taught(60, noise=0.05).costs, random.Random(8)
    for _ in range(50):
        one = sample(draw)
        foretold = found.step_seconds(
            prefill_tokens=one.prefill_tokens / one.steps,
            context_tokens=one.context_tokens / one.steps,
            sequences=one.sequences / one.steps,
        )
        assert foretold == pytest.approx(one.seconds / one.steps, rel=0.08)


def test_context_and_sequences_share_one_factor_while_they_grow_together() -> None:
    known = taught(200, context=(590, 610))
    assert known.is_tied
    found = known.costs
    assert found.context_token_seconds / PRIOR.context_token_seconds == pytest.approx(
        found.sequence_seconds / PRIOR.sequence_seconds
    )
    decode = found.sequence_seconds + 600 * found.context_token_seconds
    assert decode == pytest.approx(TRUE.sequence_seconds + 600 * TRUE.context_token_seconds, rel=0.1)


def test_a_stall_is_not_learned() -> None:
    known = taught(200, noise=0.02)
    stalled = learn(known, sample(random.Random(9), stall=3.0))
    assert stalled.costs == known.costs
    assert stalled.rejected == 1


def test_costs_that_have_changed_are_learned_anew() -> None:
    known, draw = taught(300, noise=0.02), random.Random(10)
    for _ in range(60):
        known = learn(known, sample(draw, stall=2.0))
    assert known.costs.base_seconds == pytest.approx(2 * TRUE.base_seconds, rel=0.15)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"steps": 2.0}, id="too few steps"),
        pytest.param({"seconds": 0.0}, id="no time"),
        pytest.param({"seconds": math.nan}, id="no number"),
        pytest.param({"context_tokens": -1.0}, id="negative"),
        pytest.param({"sequences": math.inf}, id="infinite"),
    ],
)
def test_what_cannot_be_true_is_not_learned(changes: dict[str, float]) -> None:
    known = start_learning(PRIOR)
    assert learn(known, replace(sample(random.Random(1)), **changes)) == known


numbers = st.floats(0, 1e9)
samples = st.builds(
    StepSample,
    steps=st.floats(1, 1e6),
    seconds=st.floats(1e-9, 1e9),
    prefill_tokens=numbers,
    context_tokens=numbers,
    sequences=numbers,
)


@given(st.lists(samples, max_size=60))
def test_costs_stay_within_their_factors_whatever_is_reported(reported: list[StepSample]) -> None:
    known = start_learning(PRIOR)
    for one in reported:
        known = learn(known, one)
    for name in ("base_seconds", "prefill_token_seconds", "context_token_seconds", "sequence_seconds"):
        factor = getattr(known.costs, name) / getattr(PRIOR, name)
        assert LEAST_FACTOR * 0.999 <= factor <= MOST_FACTOR * 1.001
