"""Writes the planner's memory of each service: on change, and at most once a minute.

It is written beside the passes, by the rounds, because it changes with every request that comes; what
stands in its way costs a restarted operator some caution and no pass anything.
"""

from __future__ import annotations

import logging
from typing import Final

from octavo_operator.api import names
from octavo_operator.decide.scaling import PlannerState
from octavo_operator.decide.scaling.memory_text import format_memory
from octavo_operator.decide.world import World
from octavo_operator.desired.scaling_memory import build_scaling_memory
from octavo_operator.shell.cache import Cache, Key, owner_uid
from octavo_operator.shell.kinds import CONFIG_MAPS
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube
from octavo_operator.shell.meters import Meters

WRITE_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class MemoryWriter:
    """One ConfigMap for each service."""

    def __init__(self, *, kube: Kube, cache: Cache, meters: Meters) -> None:
        self._kube = kube
        self._cache = cache
        self._meters = meters
        self._tried: dict[Key, tuple[float, str]] = {}
        """When it was last tried, and the text then."""

    async def write(self, world: World, state: PlannerState, *, now: float) -> None:
        """The first time a minute after it was asked first."""
        key = (world.owner.namespace, world.owner.name)
        tried_at, _ = self._tried.setdefault(key, (now, world.scaling_memory))
        if now - tried_at >= WRITE_SECONDS:
            await self.write_now(world, state, now=now)

    async def write_now(self, world: World, state: PlannerState, *, now: float) -> None:
        """Nothing while the service is suspended: then no child is written."""
        key, text = (world.owner.namespace, world.owner.name), format_memory(state)
        _, before = self._tried.get(key, (now, world.scaling_memory))
        if world.spec.suspend or text == before:
            return
        self._tried[key] = (now, text)
        try:
            await self._store(world, text)
        except (ApiRefused, ApiUnreachable) as error:
            if isinstance(error, ApiRefused) and error.in_vain:
                return
            place = {"namespace": key[0], "service": key[1]}
            logger.warning("the scaling memory could not be stored: %s", error, extra=place)

    async def _store(self, world: World, text: str) -> None:
        namespace, name = world.owner.namespace, names.scaling_memory_name(world.owner.name)
        found = self._cache.find(CONFIG_MAPS, namespace, name)
        if found is None:
            found = await self._kube.read(CONFIG_MAPS, namespace, name)
        if found is not None and owner_uid(found) != world.owner.uid:
            place = {"namespace": namespace, "service": world.owner.name}
            logger.warning("ConfigMap %s belongs to somebody else and is left alone", name, extra=place)
            return
        self._meters.writes.labels(CONFIG_MAPS.name).inc()
        self._cache.put(CONFIG_MAPS, await self._kube.apply(build_scaling_memory(world.owner, text)))

    def forget(self, key: Key) -> None:
        self._tried.pop(key, None)
