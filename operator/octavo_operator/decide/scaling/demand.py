"""Offered work in replicas, and how it compares with what was sized for when it came.

Five means of a minute make a bucket; buckets of a day are kept. Replicas that are decided on now are ready
after a cold start, and fall only to the most that a window wanted. So a minute's load is compared with the
highest load of the window that ended a cold start before it: mostly less, and more where the load rose
faster than replicas start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from octavo_operator.decide.scaling.cold_start import FIRST_GUESS_SECONDS

MINUTE: Final = 60.0
BUCKET_MINUTES: Final = 5
MAX_BUCKETS: Final = 24 * 60 // BUCKET_MINUTES
USUAL_GROWTHS: Final = (0.65, 0.75, 0.85, 0.95, 1.1)
"""Of a rate that wanders by a quarter, with nothing known of it: relative to the highest of a window."""
GRANTED: Final = 8
"""Samples of each that are taken for granted: together as many as of twenty minutes."""
GROWS_IN_SECONDS: Final = 1800.0
"""A usual growth is so much more for each of these that a replica takes to start."""
MOST_GROWTH: Final = 1.5
"""What rises faster is met when replicas are ready, and not by replicas kept for it all day."""
LEAST_HEADROOM: Final = 0.8
MOST_HEADROOM: Final = 2.5
NUM_GROWTHS: Final = 12
"""So many quantiles stand for the distribution."""
LEAST_WORK: Final = 0.2
"""Replicas; what less than this grows to says nothing about the growth of more."""


def usual_growths(horizon: float) -> tuple[float, ...]:
    """Of a load that nothing is known of, where a replica takes so many seconds to start.

    >>> usual_growths(0.0)
    (0.65, 0.75, 0.85, 0.95, 1.1)
    """
    return tuple(growth * (1 + horizon / GROWS_IN_SECONDS) for growth in USUAL_GROWTHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandBucket:
    """Five minutes of offered work."""

    start: int
    """Minutes since the epoch."""
    means: tuple[float, ...]
    sized: tuple[float, ...]
    """At the end of each minute: the highest work of the window, which the replicas are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandMemory:
    """A day of offered work, in replicas."""

    buckets: tuple[DemandBucket, ...] = ()
    """Oldest first; the last one is still open."""
    growths: tuple[float, ...] = usual_growths(FIRST_GUESS_SECONDS)
    """Of the loads that came, relative to what was sized for: quantiles, ascending."""

    def highest(self, *, seconds: float) -> float:
        """The highest mean of the minutes that ended within so many seconds."""
        minutes = math.ceil(seconds / MINUTE)
        recent = self.buckets[-(minutes // BUCKET_MINUTES + 2) :]
        means = [mean for bucket in recent for mean in bucket.means]
        return max(means[-minutes:] if minutes else (), default=0.0)


def remember_demand(
    memory: DemandMemory, *, now: float, work: float, sized: float, horizon: float
) -> DemandMemory:
    """Take in the mean of the minute that ends now; call it as often as you like, once a minute counts.

    The growths are computed anew whenever a bucket is closed.
    """
    minute = int(now // MINUTE)
    last = memory.buckets[-1] if memory.buckets else None
    if last is not None and minute < last.start + len(last.means):
        return memory
    if last is not None and minute == last.start + len(last.means) and len(last.means) < BUCKET_MINUTES:
        grown = replace(last, means=(*last.means, _rounded(work)), sized=(*last.sized, _rounded(sized)))
        return replace(memory, buckets=(*memory.buckets[:-1], grown))
    opened = DemandBucket(start=minute, means=(_rounded(work),), sized=(_rounded(sized),))
    buckets = (*memory.buckets, opened)[-MAX_BUCKETS:]
    return DemandMemory(buckets=buckets, growths=_growths(buckets, horizon))


def _rounded(work: float) -> float:
    """Three digits are enough to keep for a day."""
    return float(f"{min(work, 1e6):.3g}")


def _growths(buckets: tuple[DemandBucket, ...], horizon: float) -> tuple[float, ...]:
    ahead = max(1, int(horizon / MINUTE + 0.5))
    ratios = sorted(
        [
            *usual_growths(horizon) * GRANTED,
            *(ratio for run in _runs(buckets) for ratio in _ratios(run, ahead)),
        ]
    )
    middles = (int((index + 0.5) * len(ratios) / NUM_GROWTHS) for index in range(NUM_GROWTHS))
    return tuple(min(ratios[place], MOST_GROWTH) for place in middles)


def _runs(buckets: tuple[DemandBucket, ...]) -> list[list[tuple[float, float]]]:
    """Minutes without a gap between them: mean, and what was sized for."""
    runs: list[list[tuple[float, float]]] = []
    expected = None
    for bucket in buckets:
        if bucket.start != expected:
            runs.append([])
        runs[-1].extend(zip(bucket.means, bucket.sized, strict=True))
        expected = bucket.start + len(bucket.means)
    return runs


def _ratios(minutes: list[tuple[float, float]], ahead: int) -> Iterator[float]:
    """Replicas decided on at the end of one minute are ready in the middle of one, or of the next."""
    for index, (_, sized) in enumerate(minutes):
        if sized >= LEAST_WORK:
            yield from (mean / sized for mean, _ in minutes[index + ahead : index + ahead + 2])
