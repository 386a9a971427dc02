"""What load is expected when a replica has started: less of a burst than came, all of another load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.scaling.forecast import MOST_BACKLOG, UsualLoad, expected_rate, remember_usual

CHAT = UsualLoad(seconds=600.0, requests=6000.0, sequence_seconds=60_000.0)
"""Ten requests a second, a hundred sequences."""
RATES = st.floats(min_value=0.0, max_value=1e4)
HORIZONS = st.floats(min_value=0.0, max_value=3600.0)


def expect(rate: float, *, sequences: float | None = None, horizon: float = 180.0) -> float:
    return expected_rate(CHAT, rate=rate, sequences=sequences, horizon=horizon)


def test_usual_load_is_expected_to_stay() -> None:
    assert expect(10.0, sequences=100.0) == 10.0


def test_nothing_is_known_of_a_new_service_but_its_rate() -> None:
    assert expected_rate(UsualLoad(), rate=7.0, sequences=300.0, horizon=180.0) == 7.0


@pytest.mark.parametrize("rate", [8.0, 12.0])
def test_less_of_a_deviation_is_left_the_later_a_replica_starts(rate: float) -> None:
    now, soon, late = (abs(expect(rate, horizon=horizon) - 10.0) for horizon in (0.0, 60.0, 600.0))
    assert 2.0 > now > soon > late > 0.0


def test_load_that_doubles_is_followed_at_once() -> None:
    """Beyond two fifths it is another load: of ten more, six are expected in full."""
    assert 16.0 < expect(20.0) < 18.0


def test_load_that_stops_is_not_expected_to_come_back_whole() -> None:
    assert expect(0.0) < 4.0


def test_queue_asks_for_more_than_the_rate_shows() -> None:
    assert expect(10.0, sequences=200.0) == pytest.approx(12.0)
    assert expect(10.0, sequences=50.0) == 10.0, "fewer sequences are no reason for less"


def test_queue_without_end_is_not_taken_for_load_without_end() -> None:
    assert expect(10.0, sequences=1e9) == expect(10.0, sequences=100.0 * MOST_BACKLOG)


@given(rate=RATES, sequences=RATES, horizon=HORIZONS)
def test_expectation_lies_between_the_usual_and_what_there_is(
    rate: float, sequences: float, horizon: float
) -> None:
    expected = expect(rate, sequences=sequences, horizon=horizon)
    told = min(sequences / 10.0, MOST_BACKLOG * rate)
    assert min(10.0, rate) - 1e-9 <= expected <= max(10.0, rate, told) + 1e-9


@given(lower=RATES, more=RATES, horizon=HORIZONS)
def test_more_requests_never_lower_the_expectation(lower: float, more: float, horizon: float) -> None:
    assert expect(lower, horizon=horizon) <= expect(lower + more, horizon=horizon) + 1e-9


def test_usual_load_follows_a_new_one_within_an_hour() -> None:
    usual = CHAT
    for _ in range(360):
        usual = remember_usual(usual, seconds=10.0, rate=20.0, sequences=400.0)
    assert usual.rate == pytest.approx(20.0, rel=0.05)
    assert usual.sequence_seconds / usual.requests == pytest.approx(20.0, rel=0.05)
