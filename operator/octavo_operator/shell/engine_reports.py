"""What a ready engine says that it measured, asked once for each revision that serves.

The plan is made before any pod exists; the engine measures without looking at it. Status shows both, so
that a plan which promised too much is seen where it was promised.
"""

from __future__ import annotations

from octavo_operator.decide.observed import pods_of
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.shell.scrape import Scraper


class EngineReports:
    """Asks the pods; what was heard is kept in status."""

    def __init__(self, scraper: Scraper) -> None:
        self._scraper = scraper

    async def blocks(self, world: World, target: Target) -> int | None:
        """KV blocks that an engine of the planned revision measured room for; None until one is ready."""
        if target.revision is None or world.selected != target.revision.hash:
            return None
        known = world.status.memory_plan
        if known and known.engine_reported_blocks and world.status.update_revision == target.revision.hash:
            return known.engine_reported_blocks
        ready = (pod for pod in pods_of(world.pods, world.selected) if pod.ready and pod.address)
        pod = next(ready, None)
        return None if pod is None else await self._scraper.measured_blocks(pod, world.spec.routing.port)
