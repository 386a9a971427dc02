"""What one replica more would save: figures by hand, and that a budget is spent where it buys most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.load_curve import LoadCurve, load_curve

rates = [0.1 * 1.15**index for index in range(25)]
STRAIGHT = load_curve([(rate, min(1.0, 0.04 * rate)) for rate in rates])
STEEP = load_curve([(rate, min(1.0, 0.10 * rate)) for rate in rates])


def test_one_replica_more_saves_what_the_slope_says() -> None:
    """m = 0.04·x: N replicas miss 0.04·R²/N a second, one more saves 0.04·x² of them."""
    assert STRAIGHT.worth(1.0) == pytest.approx(0.04, rel=0.01)
    assert STRAIGHT.rate_missing(0.05) == pytest.approx(1.25, rel=0.01)


def test_a_budget_is_shared_by_the_root_of_the_slopes() -> None:
    """Two and a half times as many misses: not two and a half times as many replicas, but 1.6."""
    worth = STRAIGHT.worth(1.25)
    assert STRAIGHT.rate_worth(worth) / STEEP.rate_worth(worth) == pytest.approx(2.5**0.5, rel=0.05)


def test_loads_that_come_are_counted_by_their_requests() -> None:
    found = STRAIGHT.rate_within(0.05, [0.5, 1.5])
    assert found * 0.04 * (0.5**2 + 1.5**2) / 2 == pytest.approx(0.05, rel=0.01)
    assert found < STRAIGHT.rate_within(0.05, [1.0])


@st.composite
def curves(draw: st.DrawFn) -> LoadCurve:
    shares = sorted(draw(st.lists(st.floats(0, 1), min_size=len(rates), max_size=len(rates))))
    return load_curve(list(zip(rates, shares, strict=True)))


@given(curves(), st.lists(st.floats(0.1, 2.5), min_size=1, max_size=12), st.floats(0, 10), st.floats(0, 10))
def test_more_is_loaded_on_a_replica_the_more_one_has_to_save(
    curve: LoadCurve, loads: list[float], first: float, second: float
) -> None:
    low, high = sorted((first, second))
    assert 0 < curve.rate_worth(low) <= curve.rate_worth(high)
    assert 0 < curve.rate_worth_among(low, loads) <= curve.rate_worth_among(high, loads)


@given(curves(), st.floats(0, 10), st.floats(0, 10))
def test_worth_and_misses_never_fall_with_the_rate(curve: LoadCurve, first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 0 <= curve.miss(low) <= curve.miss(high) + 1e-12
    assert 0 <= curve.worth(low) <= curve.worth(high) + 1e-12
