"""From ready to gone: what the process says of itself and how it lets go of its work.

| stage       | /ready | new requests                       | running requests        |
| serving     | 200    | answered                           | answered                |
| handing off | 503    | answered, with `Connection: close` | answered                |
| draining    | 503    | 503 and Retry-After                | answered                |
| gone        | 503    | 503                                | ended by an error event |

Handing off exists because a pod's endpoint is removed everywhere only some seconds after its SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.05
ERROR_DELIVERY_SECONDS: Final = 3.0
"""For the error events of requests that were ended to reach their clients."""


class Stage(Enum):
    """See the module's table."""

    SERVING = "serving"
    HANDING_OFF = "handing off"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """How long each stage may last."""

    accept_seconds: float
    shutdown_seconds: float


class Lifecycle:
    """The stage, and how many requests are being answered. Lives in the event loop's thread."""

    def __init__(self) -> None:
        self.stage = Stage.SERVING
        self.num_in_flight = 0
        self._hurried = asyncio.Event()

    @property
    def is_draining(self) -> bool:
        """No new connection should come here any more."""
        return self.stage is not Stage.SERVING

    @property
    def refuses(self) -> bool:
        """New requests are turned away."""
        return self.stage in (Stage.DRAINING, Stage.GONE)

    def hurry(self) -> None:
        """Leave the present stage at once (a second Ctrl-C)."""
        self._hurried.set()

    async def drain(self, times: DrainTimes, end_all: Callable[[str], None]) -> None:
        """Go through the stages; returns when no request is being answered any more."""
        self.stage = Stage.HANDING_OFF
        logger.info("shutting down: not ready, still serving for %g s", times.accept_seconds)
        await self._wait(times.accept_seconds, until=lambda: False)
        self.stage = Stage.DRAINING
        logger.info("draining %d requests for at most %g s", self.num_in_flight, times.shutdown_seconds)
        await self._wait(times.shutdown_seconds, until=lambda: self.num_in_flight == 0)
        self.stage = Stage.GONE
        if self.num_in_flight:
            logger.warning("ending %d requests that did not finish in time", self.num_in_flight)
            end_all("the server is shutting down and the answer did not finish in time")
            await self._wait(ERROR_DELIVERY_SECONDS, until=lambda: self.num_in_flight == 0)

    async def _wait(self, seconds: float, *, until: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not until() and not self._hurried.is_set():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(min(POLL_SECONDS, left))
        self._hurried.clear()
