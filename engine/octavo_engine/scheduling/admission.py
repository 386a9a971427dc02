"""Whether one more sequence can run: a forecast of the most blocks that will ever be in use.

A sequence's end is not known, so its remaining output is guessed: the median of recent outputs that
were longer than what it has generated already, never bare `max_tokens` (clients often leave that at
the context limit, and reserving it would be the contiguous reservation that paging exists to avoid).
Sequences with the least left end first and give their blocks back; so usage peaks at one of the ends.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HISTORY: Final = 256
"""Finished outputs that the forecast remembers."""
FIRST_GUESS_TOKENS: Final = 128
"""Output expected while nothing longer has been seen."""
WATERMARK_RATIO: Final = 0.01
"""Share of the pool kept back from admission, so that a slightly wrong forecast does not preempt."""


class OutputHistory:
    """Lengths of recently finished outputs."""

    __slots__ = ("_recent", "_sorted")

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def record(self, num_output_tokens: int) -> None:
        """Remember one finished output, forgetting the oldest beyond the history's length."""
        if len(self._recent) == HISTORY:
            self._sorted.remove(self._recent.popleft())
        self._recent.append(num_output_tokens)
        insort(self._sorted, num_output_tokens)

    def expected_length(self, *, num_generated: int, max_tokens: int) -> int:
        """Output tokens to expect in all from a sequence that has generated `num_generated`.

        Beyond everything seen, the guess doubles.
        """
        start = bisect_right(self._sorted, num_generated)
        longer = len(self._sorted) - start
        if longer:
            return min(max_tokens, self._sorted[start + longer // 2])
        return min(max_tokens, max(FIRST_GUESS_TOKENS, 2 * num_generated))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one sequence holds and is expected to grow by."""

    num_blocks: int
    """Blocks for all its present tokens, shared ones counted by the first holder only."""
    remaining_blocks: int
    """Blocks of output still to come, at least one."""


def predicted_peak_blocks(forecasts: Sequence[Forecast]) -> int:
    """Most blocks in use at any time from now on, if the forecasts come true.

    When the sequence with the i-th most left ends, it and the i before it have each grown by what
    it had left; all others have ended already.

    >>> short, long = Forecast(num_blocks=4, remaining_blocks=1), Forecast(num_blocks=2, remaining_blocks=6)
    >>> predicted_peak_blocks([short, long])  # both after one more block: 4 + 1 + 2 + 1
    8
    """
    peak = held = 0
    ordered = sorted(forecasts, key=lambda forecast: -forecast.remaining_blocks)
    for index, forecast in enumerate(ordered):
        held += forecast.num_blocks
        peak = max(peak, held + forecast.remaining_blocks * (index + 1))
    return peak


def admission_limit_blocks(num_blocks: int) -> int:
    """Blocks that the predicted peak may use."""
    return num_blocks - int(num_blocks * WATERMARK_RATIO)
