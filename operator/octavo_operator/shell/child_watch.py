"""Watches the children: what is told goes into the cache and wakes the service that it belongs to.

kopf is for our own kind. For children it would keep a task and a body for each object, all at the same time
after a listing; it would end the operator when a watched definition is removed, and would not see one that is
installed later. Here bodies pass through one at a time, and kinds of other projects are watched from when the
API server has them until it has them no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from octavo_operator.api import names
from octavo_operator.shell.cache import Body, Cache, Key, key_of, mark_of
from octavo_operator.shell.kinds import CHILD_KINDS, INFERENCE_SERVICES, OPTIONAL_KINDS, Kind
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.served import ServedKinds

CHILD_SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
PAUSE_SECONDS: Final = 5.0
"""Between two looks at whether a kind is served by now, and before a watch that failed is begun anew."""

logger = logging.getLogger(__name__)


class ChildWatch:
    """One task for each kind: list, then follow until the API server no longer knows where we are."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        queue: WorkQueue[Key],
        served: ServedKinds,
        namespace: str,
        on_listed: Callable[[], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_listed` is called after each listing: what was deleted before it is in no listing."""
        self._kube = kube
        self._cache = cache
        self._queue = queue
        self._served = served
        self._namespace = namespace
        self._on_listed = on_listed
        self._pause = pause
        self._versions: dict[Kind, str] = {}
        """Of kinds that are listed: where their watches go on."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        await self._served.look_all()
        async with asyncio.TaskGroup() as group:
            for kind in (*CHILD_KINDS, *OPTIONAL_KINDS):
                group.create_task(self._follow(kind), name=f"watch-{kind.plural}")

    async def wait_listed(self) -> None:
        """Until all children are known: a pass that sees only some of them would make the others again."""
        while not self._versions.keys() >= set(CHILD_KINDS):
            self._changed.clear()
            await self._changed.wait()

    async def _follow(self, kind: Kind) -> None:
        while True:
            if kind in OPTIONAL_KINDS and kind not in self._served.kinds:
                await self._pause(PAUSE_SECONDS)
                continue
            try:
                await self.step(kind)
            except ApiUnreachable as error:
                logger.warning("the watch on %s broke: %s", kind.name, error)
                await self._pause(PAUSE_SECONDS)
            except Exception as error:
                self._begin_anew(kind, error)
                await self._pause(PAUSE_SECONDS)

    def _begin_anew(self, kind: Kind, error: Exception) -> None:
        """With a listing: the API server no longer knows where we were, or sent something odd."""
        self._versions.pop(kind, None)
        if not isinstance(error, ApiRefused):
            logger.error("the watch on %s failed", kind.name, exc_info=error)
            return
        logger.warning("the watch on %s ended: %s", kind.name, error)
        if error.status == HTTPStatus.NOT_FOUND and kind in OPTIONAL_KINDS:
            self._served.forget(kind)
            self._wake_all()

    async def step(self, kind: Kind) -> None:
        """List what was not listed yet, then follow until the API server ends it."""
        if kind not in self._versions:
            await self._list(kind)
        watch = self._kube.watch(kind, self._namespace, CHILD_SELECTOR, version=self._versions[kind])
        async for change, body in watch:
            if change == "DELETED":
                self._queue.add(self._cache.drop(kind, body) or key_of(kind, body))
            elif change in ("ADDED", "MODIFIED"):
                self._take(kind, body)
            self._versions[kind] = body["metadata"]["resourceVersion"]

    async def _list(self, kind: Kind) -> None:
        version = ""
        async for page in self._kube.list_all(kind, self._namespace, CHILD_SELECTOR):
            version = version or page.version
            for body in page.items:
                self._take(kind, body)
        self._versions[kind] = version
        self._on_listed()
        self._changed.set()

    def _take(self, kind: Kind, body: Body) -> None:
        """Nothing is done for what is known: the echo of a write of ours, or a listing's repetition."""
        metadata = body["metadata"]
        if self._cache.mark(kind, metadata["namespace"], metadata["name"]) == mark_of(body):
            return
        moved_from = self._cache.put(kind, body)
        for key in (moved_from, key_of(kind, body)):
            if key is not None:
                self._queue.add(key)

    def _wake_all(self) -> None:
        """Whoever uses the kind has to say that it is gone."""
        for key in self._cache.marks(INFERENCE_SERVICES):
            self._queue.add(key)
