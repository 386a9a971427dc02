"""Asks the probes of a quality gate in the background: an edit must not wait for an engine's answers.

One run at a time for a revision of a service. What it found is kept until nobody wants to know; a restarted
operator asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from octavo_operator.decide.gates.asking import Door
from octavo_operator.decide.gates.probes import Probes
from octavo_operator.decide.observed import PodView
from octavo_operator.shell.cache import Key
from octavo_operator.shell.engines import Engines, EngineSilent

AT_ONCE: Final = 2
"""Probes that one engine is asked at once: it may be serving others meanwhile."""
RUN_SECONDS: Final = 900.0
RETRY_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)
Subject = tuple[str, str, str]
"""Uid of the service, revision, digest of the probes."""


@dataclass(slots=True)
class Run:
    """One run and what became of it."""

    subject: Subject
    total: int
    answered: int = 0
    answers: tuple[str, ...] | None = None
    trouble: str = ""
    ended_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class ProbeRuns:
    """Used by one event loop; `tell` is called when a run has ended."""

    def __init__(self, engines: Engines, *, tell: Callable[[Key], None], clock: Callable[[], float]) -> None:
        self._engines = engines
        self._tell = tell
        self._clock = clock
        self._runs: dict[Key, dict[str, Run]] = {}

    def find(self, key: Key, subject: Subject) -> Run | None:
        """The latest run about this; one that failed is forgotten after some seconds."""
        run = self._runs.get(key, {}).get(subject[1])
        if run is None or run.subject != subject:
            return None
        if run.trouble and self._clock() - run.ended_at >= RETRY_SECONDS:
            return None
        return run

    def start(self, key: Key, subject: Subject, probes: Probes, pod: PodView, door: Door) -> Run:
        runs = self._runs.setdefault(key, {})
        cancel(runs.pop(subject[1], None))
        run = Run(subject=subject, total=len(probes))
        runs[subject[1]] = run
        run.task = asyncio.create_task(self._ask(key, run, probes, pod, door), name=f"probes-{pod.name}")
        return run

    def forget(self, key: Key) -> None:
        """Nobody wants to know any more."""
        for run in self._runs.pop(key, {}).values():
            cancel(run)

    async def close(self) -> None:
        runs = [run for by_revision in self._runs.values() for run in by_revision.values()]
        for key in list(self._runs):
            self.forget(key)
        tasks = [run.task for run in runs if run.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, key: Key, run: Run, probes: Probes, pod: PodView, door: Door) -> None:
        free = asyncio.Semaphore(AT_ONCE)

        async def ask(number: int) -> str:
            async with free:
                probe = probes[number]
                answer = await self._engines.complete(pod, door, probe.prompt, probe.asked_tokens)
                run.answered += 1
                return answer

        try:
            async with asyncio.timeout(RUN_SECONDS), asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(number)) for number in range(len(probes))]
            run.answers = tuple(task.result() for task in tasks)
        except* EngineSilent as silent:
            run.trouble = str(silent.exceptions[0])
        except* TimeoutError:
            answered = f"{run.answered} of {run.total} probes"
            run.trouble = f"pod {pod.name} answered {answered} in {RUN_SECONDS:.0f} s"
        except* Exception as unexpected:
            logger.exception("probes could not be asked", extra={"namespace": key[0], "service": key[1]})
            run.trouble = f"pod {pod.name}: {unexpected.exceptions[0]}"
        run.ended_at = self._clock()
        self._tell(key)


def cancel(run: Run | None) -> None:
    if run is not None and run.task is not None:
        run.task.cancel()
