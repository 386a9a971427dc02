"""Asks the hub now and then what the words of services stand for by now.

Shared by all services that use the same words; at most so many questions a second and at once, however
many words there are, so that a thousand services do not fall upon the hub together. What failed is asked
less and less often. Nothing here changes a service: those whose words have moved are put on the queue.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from octavo_operator.decide.pinning import repository_of
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import (
    Place,
    Upstream,
    is_news,
    next_question_seconds,
    remember_answer,
)
from octavo_operator.shell.cache import Key

QUESTIONS_AT_ONCE: Final = 4
GAP_SECONDS: Final = 0.1
"""Between two questions: a thousand different words are through in two minutes."""

Ask = Callable[[str, str], Awaitable[str | Refusal]]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Watched:
    """Some words, who uses them, and what is known of them."""

    due: float
    keys: set[Key] = field(default_factory=set)
    upstream: Upstream = field(default_factory=Upstream)
    failures: int = 0


class UpstreamWatch:
    """Used by one event loop. An interval of 0: nothing is ever asked."""

    def __init__(
        self,
        *,
        ask: Ask,
        tell: Callable[[Key], None],
        interval_seconds: float,
        draw_jitter: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._tell = tell
        self._interval = interval_seconds
        self._draw_jitter = draw_jitter
        self._clock = clock
        self._watched: dict[Place, Watched] = {}
        self._place_of: dict[Key, Place] = {}
        self._due: list[tuple[float, Place]] = []
        self._changed = asyncio.Event()
        self._free = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    def watch(self, key: Key, place: Place | None) -> Upstream | None:
        """What is known of the words that a service uses now; None while nothing is."""
        if self._place_of.get(key) != place:
            self.forget(key)
        if place is None or not self._interval:
            return None
        self._place_of[key] = place
        watched = self._watched.get(place) or self._add(place)
        watched.keys.add(key)
        return watched.upstream if watched.upstream != Upstream() else None

    def learn(self, place: Place, commit: str) -> None:
        """Somebody has just asked: the next question has time."""
        watched = self._watched.get(place)
        if watched is not None:
            self._take_answer(place, watched, commit)

    def forget(self, key: Key) -> None:
        """The service is gone, or uses other words."""
        place = self._place_of.pop(key, None)
        watched = self._watched.get(place) if place is not None else None
        if place is None or watched is None:
            return
        watched.keys.discard(key)
        if not watched.keys:
            del self._watched[place]

    def size(self) -> int:
        return len(self._watched)

    def _add(self, place: Place) -> Watched:
        """The first question comes anywhere in the first interval: after a start all words are new."""
        watched = self._watched[place] = Watched(due=0.0)
        self._schedule(place, watched, self._interval * self._draw_jitter())
        return watched

    def _schedule(self, place: Place, watched: Watched, seconds: float) -> None:
        watched.due = self._clock() + seconds
        heapq.heappush(self._due, (watched.due, place))
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as questions:
            while True:
                await self._free.acquire()
                place = await self._next_due()
                questions.create_task(self._question(place))
                await asyncio.sleep(GAP_SECONDS)

    async def _next_due(self) -> Place:
        while True:
            self._changed.clear()
            wait = self._due[0][0] - self._clock() if self._due else None
            if wait is None or wait > 0:
                await self._wait(wait)
                continue
            due, place = heapq.heappop(self._due)
            watched = self._watched.get(place)
            if watched is not None and watched.due == due:
                return place

    async def _wait(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), timeout=seconds)
        except TimeoutError:
            return

    async def _question(self, place: Place) -> None:
        uri, revision = place
        try:
            answer = await self._ask(repository_of(uri), revision)
        except Exception:
            logger.exception("a question to the hub failed", extra={"uri": uri, "revision": revision})
            answer = Refusal(reason="HubUnavailable", message="the question failed", lasting=False)
        finally:
            self._free.release()
        watched = self._watched.get(place)
        if watched is not None:
            self._take_answer(place, watched, answer)

    def _take_answer(self, place: Place, watched: Watched, answer: str | Refusal) -> None:
        watched.failures = watched.failures + 1 if isinstance(answer, Refusal) else 0
        before, watched.upstream = watched.upstream, remember_answer(watched.upstream, answer)
        self._schedule(
            place, watched, next_question_seconds(self._interval, watched.failures, self._draw_jitter())
        )
        if is_news(before, watched.upstream):
            for key in watched.keys:
                self._tell(key)
