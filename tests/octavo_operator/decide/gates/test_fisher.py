"""The exact test against its definition, and against what a share of chance must look like."""

from __future__ import annotations

from fractions import Fraction
from math import comb, isclose

from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.gates.fisher import fisher_p

counts = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))


def by_definition(good: int, total: int, other_good: int, other_total: int) -> float:
    """Of all ways to draw `total` requests, those that draw no more good ones."""
    all_good, everything = good + other_good, total + other_total
    ways = sum(
        comb(all_good, number) * comb(everything - all_good, total - number) for number in range(good + 1)
    )
    return float(Fraction(ways, comb(everything, total)))


@given(counts, counts)
def test_p_is_what_its_definition_says(mine: tuple[int, int], others: tuple[int, int]) -> None:
    assert isclose(fisher_p(*mine, *others), by_definition(*mine, *others), rel_tol=1e-9, abs_tol=1e-12)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 1))
def test_p_is_a_probability_and_falls_when_fewer_are_good(
    total: int, other_total: int, share: float, other_share: float
) -> None:
    good, other_good = int(total * share), int(other_total * other_share)
    p = fisher_p(good, total, other_good, other_total)
    assert 0 <= p <= 1
    if good > 0:
        assert fisher_p(good - 1, total, other_good + 1, other_total + 1) <= p + 1e-9


def test_p_of_millions_is_quick_and_does_not_overflow() -> None:
    assert fisher_p(900_000, 1_000_000, 980_000, 1_000_000) == 0.0
    assert 0.3 < fisher_p(980_000, 1_000_000, 980_050, 1_000_000) < 0.5
