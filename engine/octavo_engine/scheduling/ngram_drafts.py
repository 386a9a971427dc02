"""Guesses at a sequence's next tokens from its own text: what followed the last few when they came before.

Where a text repeats itself (quotes, code, lists, JSON) such drafts are often right. They cost no
model; the step that computes the next token verifies them as well.
Source: Saxena, "Prompt Lookup Decoding", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence as TokenIds
from typing import Final

MATCHED_TOKENS: Final = (3, 2)
"""Lengths of the last tokens that are looked for, the most telling first."""


class NGramIndex:
    """Where the n-grams of one growing text last ended."""

    __slots__ = ("_ends", "_num_indexed")

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def continuation(self, token_ids: TokenIds[int], *, most: int) -> tuple[int, ...]:
        """At most `most` tokens that may come next. What reaches the text's end starts over: a loop.

        >>> NGramIndex().continuation([5, 6, 7, 8, 5, 6], most=6)
        (7, 8, 5, 6, 7, 8)
        """
        self._index(token_ids)
        for size in MATCHED_TOKENS:
            end = self._ends.get(tuple(token_ids[-size:]))
            if end is not None:
                period = len(token_ids) - end
                return tuple(token_ids[end + ahead % period] for ahead in range(most))
        return ()

    def _index(self, token_ids: TokenIds[int]) -> None:
        """Note the n-grams that came since the last call, but not the text's last: nothing follows it."""
        for end in range(self._num_indexed + 1, len(token_ids)):
            for size in MATCHED_TOKENS:
                if end >= size:
                    self._ends[tuple(token_ids[end - size : end])] = end
        self._num_indexed = max(self._num_indexed, len(token_ids) - 1)
