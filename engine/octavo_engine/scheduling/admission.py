"""Whether one more sequence can run: a forecast of the most blocks that will ever be in use.

A sequence's end is not known, so its remaining output is guessed: the median of recent outputs that
were longer than what it has generated already, never bare `max_tokens` (clients often leave that at
the context limit, and reserving it would be the contiguous reservation that paging exists to avoid).
Sequences with the least left end first and give their blocks back; so usage peaks at one of the ends.
A block that several share is given back by the one that ends last, and so it is counted with that one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
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
    """What one sequence holds of one KV-cache group, and by what it is expected to grow."""

    num_blocks: int
    """Blocks for all its present tokens, less those that a sequence which ends no sooner is counted with."""
    room_tokens: int
    """Further tokens for which its last block has room."""
    remaining_tokens: int
    """Output still to come, at least one token."""
    growth_blocks: int
    """Blocks by which it grows until its end: fewer than its output fills where a window moves on."""

    def tokens_until_last_growth(self, block_size: int) -> int:
        """Output tokens after which its next one begins the last of its blocks."""
        return self.room_tokens + (self.growth_blocks - 1) * block_size


def predicted_peak_blocks(forecasts: Sequence[Forecast], *, block_size: int) -> int:
    """Most blocks in use at any time from now on, if the forecasts come true.

    All generate in step, so that usage peaks when one of them is about to end. Each begins a block
    when its own last one is full: at different tokens, which matters in a small pool.

    >>> short = Forecast(num_blocks=4, room_tokens=0, remaining_tokens=3, growth_blocks=1)
    >>> long = Forecast(num_blocks=2, room_tokens=2, remaining_tokens=96, growth_blocks=6)
    >>> predicted_peak_blocks([short, long], block_size=16)  # before the short one ends: 4 + 1 + 2 + 1
    8
    """

    def until_last(one: Forecast) -> int:
        return one.tokens_until_last_growth(block_size)

    latest_growth = sorted(forecasts, key=until_last)
    rooms: list[int] = []  # of those that still grow, rising
    peak = others = 0
    for ending in sorted(forecasts, key=lambda one: -one.remaining_tokens):
        tokens = ending.remaining_tokens
        others += ending.num_blocks + ending.growth_blocks
        while latest_growth and until_last(latest_growth[-1]) >= tokens:
            growing = latest_growth.pop()
            others -= growing.growth_blocks
            insort(rooms, growing.room_tokens)
        begun, rest = divmod(tokens, block_size)
        peak = max(peak, others + begun * len(rooms) + bisect_left(rooms, rest))
    return peak


def admission_limit_blocks(num_blocks: int) -> int:
    """Blocks that the predicted peak may use."""
    return num_blocks - int(num_blocks * WATERMARK_RATIO)
