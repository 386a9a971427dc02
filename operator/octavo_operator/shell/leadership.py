"""Holds the Lease: takes it, renews it while this process acts, gives it back at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from octavo_operator.api import names
from octavo_operator.decide.leadership import (
    GIVE_UP_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    Claim,
    LeaseView,
    decide_claim,
    parse_lease,
)
from octavo_operator.desired.lease import build_lease
from octavo_operator.shell.kinds import LEASES
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube

CONFLICT: Final = 409

logger = logging.getLogger(__name__)


class Leadership:
    """Of one process, under a name that its restarted container has too."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._held: dict[str, Any] | None = None
        """As we wrote it last; None while it is not ours, or somebody else has written it since."""
        self._held_until = 0.0
        self._seen: LeaseView | None = None
        self._seen_since = 0.0

    async def acquire(self) -> None:
        """Until nobody else has it."""
        while True:
            claim = await self._claim(within=GIVE_UP_SECONDS)
            if claim is not None and claim.step != "Wait":
                logger.info("this operator acts; its Lease: %s", claim.reason)
                return
            await self._sleep(RETRY_SECONDS)

    async def keep(self) -> None:
        """Ends when the Lease was lost: from then on this process must not act."""
        pause = RENEW_SECONDS
        while (left := self._held_until - self._clock()) > 0:
            await self._sleep(min(pause, left))
            claim = await self._claim(within=max(0.0, self._held_until - self._clock()))
            if claim is not None and claim.step == "Wait":
                break
            pause = RENEW_SECONDS if claim is not None else RETRY_SECONDS
        logger.error("the Lease was lost; another operator may act")

    async def release(self) -> None:
        """So that the next one need not wait for its end."""
        if self._held is None:
            return
        try:
            await self._write("", before=self._held)
        except (ApiRefused, ApiUnreachable) as error:
            logger.warning("the Lease was not given back, and ends by itself: %s", error)

    async def _claim(self, *, within: float) -> Claim | None:
        """What was done; None where the API server did not answer, or somebody was quicker."""
        try:
            async with asyncio.timeout(within):
                return await self._try()
        except (ApiRefused, ApiUnreachable, TimeoutError) as error:
            self._held = None
            logger.warning("the Lease was not written: %s", error)
            return None

    async def _try(self) -> Claim | None:
        body = self._held or await self._kube.read(LEASES, self._namespace, names.LEASE_NAME)
        view = self._look(body)
        claim = decide_claim(view, self._identity, unchanged_seconds=self._clock() - self._seen_since)
        if claim.step == "Wait":
            return claim
        asked = self._clock()
        if not await self._write(self._identity, before=body):
            return None
        self._held_until = asked + GIVE_UP_SECONDS
        return claim

    def _look(self, body: dict[str, Any] | None) -> LeaseView | None:
        view, before = parse_lease(body) if body is not None else None, self._seen
        if view is not None and view.holder not in ("", self._identity, before.holder if before else ""):
            logger.info("%s holds the Lease: this operator waits", view.holder)
        if view != before:
            self._seen, self._seen_since = view, self._clock()
        return view

    async def _write(self, holder: str, *, before: dict[str, Any] | None) -> bool:
        """False if somebody was quicker."""
        lease = build_lease(self._namespace, holder, seconds=LEASE_SECONDS, now=self._now(), before=before)
        try:
            stored = await (self._kube.create(lease) if before is None else self._kube.replace(lease))
        except ApiRefused as refused:
            self._held = None
            if refused.status != CONFLICT:
                raise
            return False
        self._held = stored if holder else None
        return True


async def lead(leadership: Leadership | None, act: Callable[[], None], *, end: Callable[[], None]) -> None:
    """Act from when nobody else does; `end` when somebody else may."""
    if leadership is None:
        act()
        return
    try:
        await leadership.acquire()
        act()
        await leadership.keep()
    except Exception:
        logger.exception("the Lease could not be looked after")
    end()
