"""Workers: take a key, make a pass, decide when to look again. No failure of one key stops the others."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from octavo_operator.shell.cache import Key
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.reconcile import Pass, Reconciler

NUM_WORKERS: Final = 256
"""Many, because most of them wait for somebody: a hub that does not answer must not keep the others."""
STOP_SECONDS: Final = 10.0
"""For the passes under way when the process is told to end."""

logger = logging.getLogger(__name__)


class Workers:
    """A fixed number of tasks on one queue."""

    def __init__(self, queue: WorkQueue[Key], reconciler: Reconciler, meters: Meters) -> None:
        self._queue = queue
        self._reconciler = reconciler
        self._meters = meters
        self._stopping = False
        self._busy: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(), name=f"worker-{n}") for n in range(NUM_WORKERS)]

    async def stop(self) -> None:
        """Take no more keys; passes under way may end."""
        self._stopping = True
        self._queue.close()
        busy = list(self._busy)
        for task in self._tasks:
            if task not in self._busy:
                task.cancel()
        if busy:
            await asyncio.wait(busy, timeout=STOP_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._stopping:
            key = await self._queue.take()
            self._busy.add(me)
            try:
                await self._work(key)
            finally:
                self._busy.discard(me)
                self._queue.done(key)

    async def _work(self, key: Key) -> None:
        started = time.monotonic()
        try:
            outcome = await self._reconciler.reconcile(key)
        except (ApiRefused, ApiUnreachable) as error:
            self._meters.passes.labels("refused").inc()
            place = {"namespace": key[0], "service": key[1], "seconds": round(self._queue.retry(key), 1)}
            logger.warning("the API server did not do it: %s", error, extra=place)
            return
        except Exception:
            delay = self._queue.retry(key)
            self._meters.passes.labels("error").inc()
            place = {"namespace": key[0], "service": key[1], "seconds": round(delay, 1)}
            logger.exception("a pass failed and is tried again", extra=place)
            return
        self._meters.pass_seconds.observe(time.monotonic() - started)
        self._meters.passes.labels("done" if outcome is not None else "gone").inc()
        self._schedule(key, outcome)

    def _schedule(self, key: Key, outcome: Pass | None) -> None:
        if outcome is None:
            self._queue.forget(key)
            return
        self._queue.succeeded(key)
        if outcome.changed:
            self._queue.add(key)
        if outcome.again_seconds is not None:
            self._queue.add_after(key, outcome.again_seconds)
