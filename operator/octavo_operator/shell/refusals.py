"""Who refused what lately, and until when nobody is to ask again.

Lost with the process: then everything is asked once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from octavo_operator.decide.target import Target
from octavo_operator.shell.queue import retry_delay

REMEMBERED_REFUSALS: Final = 4096

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What came of some words, and until when they are not asked again."""

    target: Target
    failures: int
    until: float


class Refusals:
    """Backs off for each line of words on its own."""

    def __init__(self, *, draw_jitter: Callable[[], float]) -> None:
        self._draw_jitter = draw_jitter
        self._refused: dict[Words, Refused] = {}

    def recall(self, words: Words, *, now: float) -> Refused | None:
        """None when it is time to ask."""
        refused = self._refused.get(words)
        return refused if refused is not None and refused.until > now else None

    def remember(self, words: Words, target: Target, *, now: float, first_seconds: float) -> float:
        """Seconds until the next try."""
        before = self._refused.pop(words, None)
        failures = before.failures + 1 if before is not None else 1
        delay = retry_delay(failures, self._draw_jitter(), first_seconds=first_seconds)
        self._refused[words] = Refused(target=target, failures=failures, until=now + delay)
        if len(self._refused) > REMEMBERED_REFUSALS:
            del self._refused[next(iter(self._refused))]
        return delay

    def forget(self, words: Words) -> None:
        self._refused.pop(words, None)
