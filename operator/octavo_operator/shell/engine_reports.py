"""What a ready engine says that it measured, asked once for each revision that serves.

The plan is made before any pod exists; the engine measures without looking at it. Status shows both, so
that a plan which promised too much is seen where it was promised.
"""

from __future__ import annotations

from typing import Final

from octavo_operator.decide.observed import pods_of
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.shell.cache import Key
from octavo_operator.shell.scrape import Scraper

RETRY_SECONDS: Final = 60.0
"""Before an engine that did not answer is asked again: a pass waits for the answer."""


class EngineReports:
    """Asks the pods; what was heard is kept in status, what was asked in vain for a while here."""

    def __init__(self, scraper: Scraper) -> None:
        self._scraper = scraper
        self._in_vain: dict[Key, tuple[str, float]] = {}

    async def blocks(self, world: World, target: Target, *, now: float) -> int | None:
        """KV blocks that an engine of the planned revision measured room for; None until one is ready."""
        if target.revision is None or world.selected != target.revision.hash:
            return None
        known = world.status.memory_plan
        if known and known.engine_reported_blocks and world.status.update_revision == target.revision.hash:
            return known.engine_reported_blocks
        ready = (pod for pod in pods_of(world.pods, world.selected) if pod.ready and pod.address)
        pod = next(ready, None)
        key = (world.owner.namespace, world.owner.name)
        if pod is None or self._was_in_vain(key, pod.name, now):
            return None
        blocks = await self._scraper.measured_blocks(pod, world.spec.routing.port)
        if blocks is None:
            self._in_vain[key] = (pod.name, now)
        return blocks

    def _was_in_vain(self, key: Key, pod: str, now: float) -> bool:
        asked, when = self._in_vain.get(key, ("", 0.0))
        return asked == pod and now - when < RETRY_SECONDS

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._in_vain.pop(key, None)
