"""Which of other projects' kinds the API server has: asked at start, and again once somebody wants one.

A definition that is installed later is found when a spec asks for it, and one that is removed is
forgotten when the API server says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from octavo_operator.shell.kinds import OPTIONAL_KINDS, Kind
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube

RETRY_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class ServedKinds:
    """What was found so far; used by one thread."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._found: set[Kind] = set()
        self._asked_at: dict[Kind, float] = {}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in OPTIONAL_KINDS if kind in self._found)

    async def names(self, wanted: Collection[str]) -> frozenset[str]:
        """The names of those that are served; a wanted one that is not is looked for now and then."""
        for kind in OPTIONAL_KINDS:
            if kind.name in wanted and kind not in self._found and self._is_due(kind):
                await self.look(kind)
        return frozenset(kind.name for kind in self._found)

    async def look_all(self) -> None:
        for kind in OPTIONAL_KINDS:
            await self.look(kind)

    async def look(self, kind: Kind) -> None:
        self._asked_at[kind] = self._clock()
        try:
            served = await self._kube.serves(kind)
        except (ApiRefused, ApiUnreachable) as error:
            logger.warning("whether %s is served could not be found out: %s", kind.name, error)
            return
        if served:
            self._found.add(kind)

    def forget(self, kind: Kind) -> None:
        """The API server no longer knows it."""
        self._found.discard(kind)

    def _is_due(self, kind: Kind) -> bool:
        asked_at = self._asked_at.get(kind)
        return asked_at is None or self._clock() - asked_at >= RETRY_SECONDS
