"""How misses grow with the load of a replica, and what one replica more would save.

N replicas that share R requests a second miss `R·m(x)` of them a second, with x = R/N and m(x) the share that
misses. One replica more saves `x²·m'(x)` of them: almost nothing while loads are small, much where the
share rises steeply. A budget of misses buys most where this *worth* is the same at all times: a burst that
can hardly be met takes more of it than a calm hour.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

HALVINGS: Final = 30
LEAST_OF_CURVE: Final = 0.25
"""Times its lowest rate: no answer is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Rates are requests a second of one replica, ascending."""

    rates: tuple[float, ...]
    misses: tuple[float, ...]
    """Share of the requests at each rate, never falling."""
    middles: tuple[float, ...]
    """Between the rates."""
    worths: tuple[float, ...]
    """There: misses a second that one replica more saves, never falling. Beyond a rate at which all miss it
    would save nothing, but the requests of such a minute are late for minutes to come."""

    def miss(self, rate: float) -> float:
        return _between(self.rates, self.misses, rate)

    def worth(self, rate: float) -> float:
        highest = self.middles[-1]
        if rate > highest:
            return self.worths[-1] * (rate / highest) ** 2
        return _between(self.middles, self.worths, rate)

    def rate_missing(self, share: float) -> float:
        """The most at which no larger share misses."""
        return self._most(self.miss, share)

    def rate_worth(self, worth: float) -> float:
        """The most at which one replica more saves no more."""
        return self._most(self.worth, worth)

    def rate_within(self, budget: float, loads: Sequence[float]) -> float:
        """The most to size for, if the loads that come are these multiples of it, and so many may miss."""
        total = sum(loads)
        return self._most(lambda rate: sum(load * self.miss(rate * load) for load in loads) / total, budget)

    def rate_worth_among(self, worth: float, loads: Sequence[float]) -> float:
        """The most to size for, if the loads that come are these multiples of it."""
        return self._most(lambda rate: self.mean_worth(rate, loads), worth)

    def mean_worth(self, rate: float, loads: Sequence[float]) -> float:
        return sum(self.worth(rate * load) for load in loads) / len(loads)

    def _most(self, grows: Callable[[float], float], limit: float) -> float:
        low, high = LEAST_OF_CURVE * self.rates[0], self.rates[-1]
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if grows(middle) <= limit:
                low = middle
            else:
                high = middle
        return low


def load_curve(points: Sequence[tuple[float, float]]) -> LoadCurve:
    """From (rate, share that misses), by rate.

    >>> curve = load_curve([(1.0, 0.0), (2.0, 0.1), (3.0, 0.5)])
    >>> curve.miss(1.5), round(curve.rate_missing(0.3), 6)
    (0.05, 2.5)
    """
    rates = tuple(rate for rate, _ in points)
    misses = tuple(accumulate((share for _, share in points), max))
    rows = list(pairwise(zip(rates, misses, strict=True)))
    slopes = [low * high * (more - less) / (high - low) for (low, less), (high, more) in rows]
    return LoadCurve(
        rates=rates,
        misses=misses,
        middles=tuple(math.sqrt(low * high) for (low, _), (high, _) in rows),
        worths=tuple(accumulate(slopes, max)),
    )


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """On the straight line between neighbours; below the first, towards nothing at nothing."""
    if x <= xs[0]:
        return ys[0] * x / xs[0]
    if x >= xs[-1]:
        return ys[-1]
    index = bisect_right(xs, x)
    left, right = xs[index - 1], xs[index]
    return ys[index - 1] + (ys[index] - ys[index - 1]) * (x - left) / (right - left)
