"""Compares the cache with the API server: for events that no watch has told.

A watch that was broken for too long lists anew, and what was deleted in the gap is in no listing and
brings no event. So the cache is compared some moments after any listing, and every few minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from octavo_operator.shell.cache import Body, Cache, Key, Mark, key_of, mark_of
from octavo_operator.shell.child_watch import CHILD_SELECTOR
from octavo_operator.shell.kinds import CHILD_KINDS, INFERENCE_SERVICES, Kind
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube
from octavo_operator.shell.queue import WorkQueue

INTERVAL_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 3.0
"""After the last of what is listed, for the watches to tell what they know."""

logger = logging.getLogger(__name__)


class Resync:
    """One task that mends the cache; what it finds is put on the queue."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        queue: WorkQueue[Key],
        namespace: str,
        optional: Callable[[], tuple[Kind, ...]],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._queue = queue
        self._namespace = namespace
        self._optional = optional
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Soon, rather than when the time has come."""
        self._asked.set()

    async def run(self) -> None:
        wait = INTERVAL_SECONDS
        while True:
            await self._wait(wait)
            wait = INTERVAL_SECONDS if await self._compare_all() else RETRY_SECONDS

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), timeout=seconds)
        while self._asked.is_set():
            self._asked.clear()
            await asyncio.sleep(SETTLE_SECONDS)

    async def _compare_all(self) -> bool:
        try:
            for kind in (INFERENCE_SERVICES, *CHILD_KINDS, *self._optional()):
                await self.compare(kind)
        except (ApiRefused, ApiUnreachable) as error:
            logger.warning("the cache could not be compared with the API server: %s", error)
            return False
        return True

    async def compare(self, kind: Kind) -> None:
        """Only what the watches have not told some moments later is mended."""
        selector = "" if kind is INFERENCE_SERVICES else CHILD_SELECTOR
        before = self._cache.marks(kind)
        listed = await self._read_marks(kind, selector)
        places = before.keys() | listed.keys()
        suspects = [place for place in places if before.get(place) != listed.get(place)]
        if suspects:
            await asyncio.sleep(SETTLE_SECONDS)
        for place in suspects:
            if self._cache.mark(kind, *place) == before.get(place):
                await self._mend(kind, place, selector)

    async def _read_marks(self, kind: Kind, selector: str) -> dict[Key, Mark]:
        """As the API server has it, by namespace and name."""
        marks: dict[Key, Mark] = {}
        async for page in self._kube.list_metadata(kind, self._namespace, selector):
            marks.update((place_of(body), mark_of(body)) for body in page.items)
        return marks

    async def _mend(self, kind: Kind, place: Key, selector: str) -> None:
        """Take what is there now, even if its version is lower: a restored etcd counts from behind."""
        known = self._cache.mark(kind, *place)
        there = await self._kube.read_listed(kind, *place, selector=selector)
        found = mark_of(there) if there is not None else None
        if self._cache.mark(kind, *place) != known or found == known:
            return
        logger.info("no watch told of a change to %s %s/%s", kind.name, *place)
        keys = [self._cache.forget(kind, *place)]
        if there is not None:
            self._cache.put(kind, there)
            keys.append(key_of(kind, there))
        for key in keys:
            if key is not None:
                self._queue.add(key)


def place_of(body: Body) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
