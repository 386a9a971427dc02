"""Watches other projects' kinds, from when the API server has them until it has them no more.

kopf looks once at what is served, and ends the operator when a watched definition is removed: both are
right for our own kind and wrong for a cluster that gets, or loses, Gateway API while models are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from octavo_operator.shell.cache import Body, Cache, Key, key_of, version_of
from octavo_operator.shell.kinds import INFERENCE_SERVICES, OPTIONAL_KINDS, Kind
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.served import ServedKinds
from octavo_operator.shell.watch import CHILD_SELECTOR

PAUSE_SECONDS: Final = 5.0
"""Between two looks at whether a kind is served by now, and before a watch that failed is begun anew."""

logger = logging.getLogger(__name__)


class OptionalWatch:
    """One task for each kind; what they are told goes into the cache and on the queue."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        queue: WorkQueue[Key],
        served: ServedKinds,
        namespace: str,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._queue = queue
        self._served = served
        self._namespace = namespace
        self._pause = pause

    async def run(self) -> None:
        await self._served.look_all()
        await asyncio.gather(*(self._follow(kind) for kind in OPTIONAL_KINDS))

    async def _follow(self, kind: Kind) -> None:
        while True:
            if kind not in self._served.kinds:
                await self._pause(PAUSE_SECONDS)
                continue
            try:
                await self.watch(kind)
            except ApiRefused as refused:
                if refused.status == HTTPStatus.NOT_FOUND:
                    self._served.forget(kind)
                    self._wake_all()
                logger.warning("the watch on %s ended: %s", kind.name, refused)
                await self._pause(PAUSE_SECONDS)
            except ApiUnreachable as error:
                logger.warning("the watch on %s broke: %s", kind.name, error)
                await self._pause(PAUSE_SECONDS)

    def _wake_all(self) -> None:
        """Whoever uses the kind has to say that it is gone."""
        for body in self._cache.bodies(INFERENCE_SERVICES):
            self._queue.add(key_of(INFERENCE_SERVICES, body))

    async def watch(self, kind: Kind) -> None:
        """Until the API server ends it."""
        async for change, body in self._kube.watch(kind, self._namespace, CHILD_SELECTOR):
            if change == "DELETED":
                self._queue.add(self._cache.drop(kind, body) or key_of(kind, body))
            elif change in ("ADDED", "MODIFIED"):
                self._take(kind, body)

    def _take(self, kind: Kind, body: Body) -> None:
        """A new watch tells again what is known: nothing is done for that."""
        metadata = body["metadata"]
        known = self._cache.find(kind, metadata["namespace"], metadata["name"])
        if known is not None and version_of(known) == version_of(body):
            return
        moved_from = self._cache.put(kind, body)
        for key in (moved_from, key_of(kind, body)):
            if key is not None:
                self._queue.add(key)
