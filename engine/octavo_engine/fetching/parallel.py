"""Work in a few threads that nobody waits for: the first failure ends it, and the process may exit at once.

`concurrent.futures` joins its threads at exit, so that a fetch that was told to end would go on until
its slowest connection gives up.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Final

TICK_SECONDS: Final = 0.5
LAST_MOMENT_SECONDS: Final = 2.0
"""For threads to notice that they should stop, so that they seldom write after the failure was told."""

Job = Callable[[], None]


def run_all(jobs: Iterable[Job], *, num_threads: int, tick: Job, stop: Job) -> None:
    """Run all jobs; raise what the first one raises, after `stop`. `tick` is called now and then."""
    todo, ends = _queue_of(jobs), queue.SimpleQueue[BaseException | None]()
    left = todo.qsize()
    threads = [
        threading.Thread(target=_work, args=(todo, ends), name=f"fetch-{number}", daemon=True)
        for number in range(min(num_threads, left))
    ]
    for thread in threads:
        thread.start()
    try:
        while left:
            left -= _wait_for_one(ends, tick)
    except BaseException:
        stop()
        for thread in threads:
            thread.join(LAST_MOMENT_SECONDS / len(threads))
        raise
    tick()


def _queue_of(jobs: Iterable[Job]) -> queue.SimpleQueue[Job]:
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    return todo


def _work(todo: queue.SimpleQueue[Job], ends: queue.SimpleQueue[BaseException | None]) -> None:
    while True:
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        try:
            job()
        except BaseException as error:
            ends.put(error)
            return
        ends.put(None)


def _wait_for_one(ends: queue.SimpleQueue[BaseException | None], tick: Job) -> int:
    """How many jobs came to their end within a tick."""
    try:
        error = ends.get(timeout=TICK_SECONDS)
    except queue.Empty:
        tick()
        return 0
    if error is not None:
        raise error
    return 1
