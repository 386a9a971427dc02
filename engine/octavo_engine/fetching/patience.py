"""How long to wait for a hub that is not there: ever longer, never all at once, and not for ever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waits between attempts; they double up to a bound, and end when their sum has reached the limit."""

    first_seconds: float = 1.0
    most_seconds: float = 30.0
    limit_seconds: float = 300.0

    def waits(self, chance: random.Random) -> Iterator[float]:
        """Each between half and the whole of its step, so that many pods do not come back at once.

        >>> patience = Patience(first_seconds=1, most_seconds=4, limit_seconds=20)
        >>> [round(wait) for wait in patience.waits(random.Random(3))]
        [1, 2, 3, 3, 3, 2, 2, 4, 3]
        """
        step, spent = self.first_seconds, 0.0
        while spent < self.limit_seconds:
            wait = step * chance.uniform(0.5, 1.0)
            yield wait
            spent += wait
            step = min(2 * step, self.most_seconds)
