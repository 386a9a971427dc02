"""Reads the engines and asks the planner, round after round, in loops of its own.

A pass never waits for an engine: it takes the number that the last round left, and a round puts the service
on the work queue when that number, or what is to be said of it, has changed. Between two changes the words
are renewed once a minute, so that status is not written for every request that comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from octavo.step_learning import LearnedCosts
from octavo_operator.decide.scaling import (
    PlannerState,
    ScalingDecision,
    decide_fixed_replicas,
    decide_replicas,
)
from octavo_operator.decide.scaling.memory_text import parse_memory
from octavo_operator.decide.scaling.publishing import is_news, recommend, still_holds, wait_for_readings
from octavo_operator.decide.scaling.report import recall_recent
from octavo_operator.decide.scaling.viewing import held_replicas, readable_pods, view_service
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.shell.cache import Key
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.scaling_memory import MemoryWriter
from octavo_operator.shell.scrape import Scraper

INTERVAL_SECONDS: Final = 10.0
"""Between two rounds of one service."""
RENEWAL_SECONDS: Final = 60.0
"""After which changed figures are published though nothing else has changed."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Tracked:
    """One service whose engines are read."""

    world: World
    """As the last pass saw it."""
    target: Target
    state: PlannerState
    started_at: float
    published: ScalingDecision | None = None
    published_at: float = 0.0
    loop: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class SharedCosts:
    """What was learned of each kind of replica, whichever service it belongs to."""

    by_kind: dict[str, LearnedCosts] = field(default_factory=dict)

    def lend(self, state: PlannerState, kind: str) -> PlannerState:
        """The state with what others know better."""
        shared, own = self.by_kind.get(kind), state.learned.get(kind)
        if shared is None or (own is not None and own.samples >= shared.samples):
            return state
        return replace(state, learned={**state.learned, kind: shared})

    def take(self, state: PlannerState, kind: str) -> None:
        if kind in state.learned:
            self.by_kind[kind] = state.learned[kind]


class Autoscaler:
    """The rounds of all services under mode SLO or Recommend."""

    def __init__(
        self,
        *,
        scraper: Scraper,
        memory: MemoryWriter,
        queue: WorkQueue[Key],
        clock: Callable[[], float],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._scraper = scraper
        self._memory = memory
        self._queue = queue
        self._clock = clock
        self._interval = interval_seconds
        self._tracked: dict[Key, Tracked] = {}
        self._costs = SharedCosts()

    def decide(self, world: World, target: Target) -> ScalingDecision:
        """At once: the number that spec gives, or that the last round left."""
        policy, fixed = world.spec.autoscaling, decide_fixed_replicas(world.spec)
        if policy is None or policy.mode == "External":
            assert fixed is not None, f"mode {policy and policy.mode} gives a number"
            self.forget(key_of(world))
            return fixed
        tracked = self._track(world, target)
        held = held_replicas(world, policy)
        decision = tracked.published or wait_for_readings(held, policy)
        return decision if fixed is None else recommend(decision, fixed.replicas)

    def published(self) -> Iterator[tuple[Key, str, ScalingDecision]]:
        """Key, mode and latest decision of each service, for metrics and recommendations."""
        for key, tracked in list(self._tracked.items()):
            policy = tracked.world.spec.autoscaling
            if tracked.published is not None and policy is not None:
                yield key, policy.mode, tracked.published

    def forget(self, key: Key) -> None:
        tracked = self._tracked.pop(key, None)
        if tracked is not None and tracked.loop is not None:
            tracked.loop.cancel()
        self._memory.forget(key)

    async def close(self) -> None:
        """The memory is written once more, so that the next operator goes on where this one ends."""
        loops = [tracked.loop for tracked in self._tracked.values() if tracked.loop is not None]
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        for tracked in self._tracked.values():
            await self._memory.write_now(tracked.world, tracked.state, now=self._clock())

    def _track(self, world: World, target: Target) -> Tracked:
        key = key_of(world)
        tracked = self._tracked.get(key)
        if tracked is not None and tracked.world.owner.uid != world.owner.uid:
            self.forget(key)
            tracked = None
        if tracked is None:
            remembered = parse_memory(world.scaling_memory, now=self._clock())
            state = replace(remembered or PlannerState(), recent=recall_recent(world.status.autoscaling))
            tracked = Tracked(world=world, target=target, state=state, started_at=self._clock())
            self._tracked[key] = tracked
            tracked.loop = asyncio.create_task(self._run(key, tracked), name=f"scaling-{'/'.join(key)}")
        tracked.world, tracked.target = world, target
        return tracked

    async def _run(self, key: Key, tracked: Tracked) -> None:
        """No failure of one round ends the rounds."""
        while True:
            try:
                await self._round(key, tracked)
            except Exception:
                logger.exception("a round failed", extra={"namespace": key[0], "service": key[1]})
            await asyncio.sleep(self._interval)

    async def _round(self, key: Key, tracked: Tracked) -> None:
        readings = await self._scraper.read(readable_pods(tracked.world), tracked.world.spec.routing.port)
        world, policy, now = tracked.world, tracked.world.spec.autoscaling, self._clock()
        if policy is None:
            return
        view = view_service(world, tracked.target, readings, policy=policy)
        if view is None:
            return
        lent = self._costs.lend(tracked.state, view.engine)
        decision, tracked.state = decide_replicas(now=now, policy=policy, view=view, state=lent)
        self._costs.take(tracked.state, view.engine)
        self._publish(key, tracked, decision, now=now)
        await self._memory.write(world, tracked.state, now=now)

    def _publish(self, key: Key, tracked: Tracked, decision: ScalingDecision, *, now: float) -> None:
        before = tracked.published
        is_due = now - tracked.published_at >= RENEWAL_SECONDS and decision != before
        if not is_news(before, decision) and not is_due:
            return
        young = now - tracked.started_at < RENEWAL_SECONDS
        if before is None and young and still_holds(tracked.world.status.autoscaling, decision):
            return
        tracked.published, tracked.published_at = decision, now
        self._queue.add(key)


def key_of(world: World) -> Key:
    return world.owner.namespace, world.owner.name
