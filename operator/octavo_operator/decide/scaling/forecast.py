"""The rate of requests to expect when a replica that is ordered now has started.

A load wanders around what is usual and comes back to it, and the more so the burstier it is: of what the last
minute has above or below, only a part is left one cold start later. What is far off is another load, and
is followed. And the last minute is late by half of it, while sequences are in flight now: more of them than
usually go with so many requests a second are work that the rate does not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from octavo_operator.decide.scaling.demand import MINUTE

USUAL_SECONDS: Final = 1200.0
"""In which what is usual is forgotten to a third."""
KEPT_SECONDS: Final = 180.0
"""In which a deviation shrinks to a third, counted from the middle of the last minute to that of the one in
which a replica starts. Chosen in the simulator, on seeds that no result is reported on."""
LARGE_DEVIATION: Final = 0.4
"""Of the usual; what is beyond stays."""
BACKLOG_SHARE: Final = 0.2
"""Of the work that sequences tell of and the rate does not. Chosen likewise."""
MOST_BACKLOG: Final = 2.0
"""Times the rate; a queue is not taken for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLoad:
    """Decaying sums over rounds in which every pod answered."""

    seconds: float = 0.0
    requests: float = 0.0
    sequence_seconds: float = 0.0
    """Of sequences that ran or waited."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds if self.seconds > 0 else 0.0


def remember_usual(usual: UsualLoad, *, seconds: float, rate: float, sequences: float) -> UsualLoad:
    """The sums after so many seconds of this."""
    kept = math.exp(-seconds / USUAL_SECONDS)
    return UsualLoad(
        seconds=usual.seconds * kept + seconds,
        requests=usual.requests * kept + seconds * rate,
        sequence_seconds=usual.sequence_seconds * kept + seconds * sequences,
    )


def expected_rate(usual: UsualLoad, *, rate: float, sequences: float | None, horizon: float) -> float:
    """Requests a second in `horizon` seconds, if the last minute had `rate` and so many are in flight.

    Without what is usual, it is the rate; sequences are None where some pods cannot be read.

    >>> chat = UsualLoad(seconds=600.0, requests=6000.0, sequence_seconds=60_000.0)
    >>> round(expected_rate(chat, rate=12.0, sequences=100.0, horizon=60.0), 1)  # half is left
    11.0
    >>> round(expected_rate(chat, rate=30.0, sequences=None, horizon=60.0), 1)  # 14 is the limit
    28.1
    """
    if usual.requests <= 0:
        return rate
    deviation, large = rate - usual.rate, LARGE_DEVIATION * usual.rate
    small = min(max(deviation, -large), large)
    kept = math.exp(-(horizon + MINUTE) / KEPT_SECONDS)
    expected = usual.rate + kept * small + (deviation - small)
    return expected + BACKLOG_SHARE * max(0.0, _told_by(usual, rate, sequences) - expected)


def _told_by(usual: UsualLoad, rate: float, sequences: float | None) -> float:
    """The rate that usually goes with so many sequences."""
    if sequences is None or usual.sequence_seconds <= 0:
        return 0.0
    return min(sequences * usual.requests / usual.sequence_seconds, MOST_BACKLOG * rate)
