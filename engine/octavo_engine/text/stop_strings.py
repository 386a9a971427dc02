"""Stop strings, held back exactly: no character of a match ever leaves, none of a near miss is lost.

The first stop string to be *completed*, character by character, ends the text just before itself.
That rule does not depend on how the text was cut into pieces, so a stream and a whole answer agree.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches one sequence's text. `matched` is the stop string that ended it, if one did."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The part of the text that is certain not to belong to a stop string."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        end = self._first_match()
        if end is None:
            end = len(self._held) - self._longest_open_prefix()
        released, self._held = self._held[:end], self._held[end:]
        return released

    def flush(self) -> str:
        """What was held back for a stop string that did not come."""
        if self.matched is not None:
            return ""
        released, self._held = self._held, ""
        return released

    def pass_through(self, text: str) -> str:
        """Text that may not end the sequence yet (`min_tokens`); nothing of it counts for a match."""
        released, self._held = self._held + text, ""
        return released

    def _first_match(self) -> int | None:
        """Where the earliest completed stop string begins, and remember which it was."""
        found = [
            (start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) >= 0
        ]
        if not found:
            return None
        _, start, self.matched = min(found)
        return start

    def _longest_open_prefix(self) -> int:
        return max(open_prefix(self._held, stop) for stop in self._stops)


def open_prefix(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop` without completing it.

    >>> open_prefix("xxDEFG", "DEFGHIJ")
    4
    """
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
