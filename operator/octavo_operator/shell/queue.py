"""Our own work queue: keys, each once, one worker a key at a time, retries that back off.

A key that is added while it is being worked on comes again afterwards. A timed key is one timer: an
earlier one replaces a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT")

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0
JITTER: Final = 0.5
"""A delay is stretched by up to this share, so that what failed together does not retry together."""


def retry_delay(failures: int, jitter: float, *, first_seconds: float = FIRST_DELAY_SECONDS) -> float:
    """Seconds before the next try after so many failures in a row; `jitter` is from 0 to 1.

    >>> retry_delay(1, 0.0), retry_delay(4, 0.0), retry_delay(100, 0.0)
    (1.0, 8.0, 300.0)
    """
    doubled = first_seconds * 2.0 ** min(failures - 1, 30)
    return min(doubled, LONGEST_DELAY_SECONDS) * (1 + JITTER * jitter)


class WorkQueue(Generic[KeyT]):
    """Used by one event loop."""

    def __init__(self, *, draw_jitter: Callable[[], float]) -> None:
        self._draw_jitter = draw_jitter
        self._ready: asyncio.Queue[KeyT] = asyncio.Queue()
        self._waiting: set[KeyT] = set()
        self._working: set[KeyT] = set()
        self._again: set[KeyT] = set()
        self._timers: dict[KeyT, asyncio.TimerHandle] = {}
        self._failures: dict[KeyT, int] = {}

    def add(self, key: KeyT) -> None:
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: KeyT, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._fire, key)

    def _fire(self, key: KeyT) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def take(self) -> KeyT:
        """The next key; `done` must follow."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: KeyT) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def retry(self, key: KeyT) -> float:
        """Come again after a while that grows with each failure in a row; returns the seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = retry_delay(self._failures[key], self._draw_jitter())
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: KeyT) -> None:
        self._failures.pop(key, None)

    def forget(self, key: KeyT) -> None:
        """For a key whose object is gone."""
        self.succeeded(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def depth(self) -> int:
        return self._ready.qsize()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
