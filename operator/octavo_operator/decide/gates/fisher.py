"""Fisher's exact test, one-sided: how likely is so bad a result by chance alone?

Of all requests of both revisions together so many were good. If it made no difference which revision
answered, the good ones of the candidate would be drawn from them blindly: hypergeometric.
"""

from __future__ import annotations

from math import exp, lgamma
from typing import Final

NEGLIGIBLE: Final = 1e-18
"""A share of the sum that no further term can change."""


def fisher_p(good: int, total: int, other_good: int, other_total: int) -> float:
    """Probability that at most `good` of `total` are good, both alike. Exact; terms are summed outwards.

    >>> round(fisher_p(2, 17, 10, 13), 7)  # Fisher's twins, as R's fisher.test(alternative = "less") gives it
    0.0004652
    >>> fisher_p(0, 0, 5, 5)
    1.0
    """
    assert 0 <= good <= total and 0 <= other_good <= other_total, "good ones are some of all"
    all_good, everything = good + other_good, total + other_total
    if good * everything >= total * all_good:
        # From the middle on, the other end is the shorter way: the bad ones of the others.
        return 1.0 - _tail(other_good - 1, other_total, all_good, everything)
    return _tail(good, total, all_good, everything)


def _tail(good: int, total: int, all_good: int, everything: int) -> float:
    """Chance of at most `good` among `total` drawn, below the middle, where terms fall fast."""
    least = max(0, total - (everything - all_good))
    if good < least:
        return 0.0
    term = exp(_log_chance(good, total, all_good, everything))
    chance = 0.0
    for number in range(good, least - 1, -1):
        chance += term
        if term <= NEGLIGIBLE * chance:
            break
        term *= _step_down(number, total, all_good, everything)
    return min(1.0, chance)


def _step_down(number: int, total: int, all_good: int, everything: int) -> float:
    """The chance of one good one fewer, as a multiple of the chance of `number`."""
    bad_left = everything - all_good - total + number
    return number * bad_left / ((all_good - number + 1) * (total - number + 1))


def _log_chance(number: int, total: int, all_good: int, everything: int) -> float:
    ways = _log_choose(all_good, number) + _log_choose(everything - all_good, total - number)
    return ways - _log_choose(everything, total)


def _log_choose(many: int, some: int) -> float:
    return lgamma(many + 1) - lgamma(some + 1) - lgamma(many - some + 1)
