"""The forecast of the highest use of blocks, and the guess of how long an output gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.scheduling.admission import (
    FIRST_GUESS_TOKENS,
    HISTORY,
    Forecast,
    OutputHistory,
    predicted_peak_blocks,
)

BLOCK = 4


@st.composite
def forecast(draw: st.DrawFn) -> Forecast:
    room, remaining = draw(st.integers(0, BLOCK - 1)), draw(st.integers(1, 40))
    return Forecast(
        num_blocks=draw(st.integers(0, 20)),
        room_tokens=room,
        remaining_tokens=remaining,
        growth_blocks=draw(st.integers(0, -((room - remaining) // BLOCK))),
    )


FORECASTS = st.lists(forecast(), max_size=8)


def peak(forecasts: list[Forecast]) -> int:
    return predicted_peak_blocks(forecasts, block_size=BLOCK)


def simulated_peak(forecasts: list[Forecast]) -> int:
    """Token by token: a block more when one is full, and all given back after the last token."""
    highest = 0
    for token in range(1, 41):
        alive = [forecast for forecast in forecasts if forecast.remaining_tokens >= token]
        begun = [-((one.room_tokens - token) // BLOCK) for one in alive]
        grown = [min(one.growth_blocks, count) for one, count in zip(alive, begun, strict=True)]
        highest = max(highest, sum(one.num_blocks for one in alive) + sum(grown))
    return highest


@given(FORECASTS)
def test_predicted_peak_is_that_of_a_simulation(forecasts: list[Forecast]) -> None:
    assert peak(forecasts) == simulated_peak(forecasts)


@given(FORECASTS, forecast())
def test_one_more_sequence_never_lowers_the_peak(forecasts: list[Forecast], more: Forecast) -> None:
    assert peak([*forecasts, more]) >= peak(forecasts)


def test_expected_length_is_the_median_of_longer_outputs() -> None:
    history = OutputHistory()
    for length in (5, 10, 20, 30, 40):
        history.record(length)
    assert history.expected_length(num_generated=0, max_tokens=1000) == 20
    assert history.expected_length(num_generated=15, max_tokens=1000) == 30
    assert history.expected_length(num_generated=15, max_tokens=18) == 18


def test_expected_length_without_history_is_a_guess_that_doubles_and_never_bare_max_tokens() -> None:
    history = OutputHistory()
    assert history.expected_length(num_generated=0, max_tokens=100_000) == FIRST_GUESS_TOKENS
    assert history.expected_length(num_generated=500, max_tokens=100_000) == 1000
    assert history.expected_length(num_generated=500, max_tokens=600) == 600


def test_history_forgets_what_is_long_past() -> None:
    history = OutputHistory()
    history.record(9999)
    for _ in range(HISTORY):
        history.record(10)
    assert history.expected_length(num_generated=0, max_tokens=100_000) == 10
    assert history.expected_length(num_generated=10, max_tokens=100_000) == FIRST_GUESS_TOKENS
