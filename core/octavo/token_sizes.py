"""How long requests are: not only in the mean, since what waits behind a prompt feels its whole length."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from octavo.errors import InvalidSpec

Sums = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSizes:
    """Token counts, ascending, each with its share of the requests."""

    tokens: tuple[float, ...]
    shares: tuple[float, ...]
    below: tuple[Sums, ...]
    """Of the first n sizes: sums of share, share · tokens and share · tokens², for n from none to all."""

    @property
    def mean(self) -> float:
        return self.below[-1][1]

    def up_to(self, limit: float) -> Sums:
        """Share of the requests that are no longer, and the sums of their tokens and squares.

        >>> token_sizes([(100, 1), (900, 3)]).up_to(500)
        (0.25, 25.0, 2500.0)
        """
        return self.below[bisect_right(self.tokens, limit)]

    def quantile(self, share: float) -> float:
        """So many of the requests are no longer.

        >>> token_sizes([(100, 1), (900, 1)]).quantile(0.5)
        100.0
        """
        place = bisect_left([passed for passed, _, _ in self.below], share - 1e-9)
        return self.tokens[min(max(place - 1, 0), len(self.tokens) - 1)]


def token_sizes(sizes: Iterable[tuple[float, float]]) -> TokenSizes:
    """From (tokens, weight) of each size."""
    found = sorted((float(size), weight) for size, weight in sizes if weight > 0)
    total = sum(weight for _, weight in found)
    if total <= 0:
        raise InvalidSpec("sizes: at least one must have a weight above 0")
    rows = [(size, weight / total) for size, weight in found]
    moments = ((share, share * size, share * size * size) for size, share in rows)
    return TokenSizes(
        tokens=tuple(size for size, _ in rows),
        shares=tuple(share for _, share in rows),
        below=tuple(accumulate(moments, _added, initial=(0.0, 0.0, 0.0))),
    )


def _added(before: Sums, one: Sums) -> Sums:
    return (before[0] + one[0], before[1] + one[1], before[2] + one[2])


def steps_of(tokens: float, step_tokens: float) -> int:
    """
    >>> steps_of(0, 512), steps_of(512, 512), steps_of(513, 512)
    (1, 1, 2)
    """
    return max(1, math.ceil(tokens / step_tokens))


def exponential_sizes(mean: float, points: int = 20) -> list[tuple[float, float]]:
    """Sizes of equal weight whose mean is that, for when only the mean is known.

    >>> sizes = exponential_sizes(100)
    >>> round(sum(size for size, _ in sizes) / len(sizes)), round(sizes[-1][0])
    (100, 375)
    """
    middles = [-math.log(1 - (index + 0.5) / points) for index in range(points)]
    factor = mean * points / sum(middles)
    return [(middle * factor, 1.0) for middle in middles]
