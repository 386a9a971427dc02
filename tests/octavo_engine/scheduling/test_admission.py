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

FORECASTS = st.lists(
    st.builds(Forecast, num_blocks=st.integers(1, 20), remaining_blocks=st.integers(1, 20)), max_size=8
)


@given(FORECASTS)
def test_predicted_peak_is_that_of_a_simulation(forecasts: list[Forecast]) -> None:
    peak = 0
    alive = list(forecasts)
    for grown in range(1, 21):
        alive = [forecast for forecast in alive if forecast.remaining_blocks >= grown]
        peak = max(peak, sum(forecast.num_blocks + grown for forecast in alive))
    assert predicted_peak_blocks(forecasts) == peak


@given(FORECASTS, st.builds(Forecast, num_blocks=st.integers(1, 20), remaining_blocks=st.integers(1, 20)))
def test_one_more_sequence_never_lowers_the_peak(forecasts: list[Forecast], more: Forecast) -> None:
    assert predicted_peak_blocks([*forecasts, more]) >= predicted_peak_blocks(forecasts)


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
