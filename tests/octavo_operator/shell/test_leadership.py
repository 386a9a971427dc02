"""Holding the Lease, with an API server of a few lines and a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import pytest

from octavo_operator.decide.leadership import GIVE_UP_SECONDS, LEASE_SECONDS
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable
from octavo_operator.shell.leadership import Leadership, lead


class Leases:
    """One Lease under optimistic concurrency."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.away = False
        self.writes = 0

    async def read(self, *_: object) -> dict[str, Any] | None:
        self._answer()
        return self.body

    async def create(self, lease: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.body is not None:
            raise ApiRefused(409, "exists")
        return self._store(lease)

    async def replace(self, lease: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.body is None or lease["metadata"]["resourceVersion"] != self.version:
            raise ApiRefused(409, "conflict")
        return self._store(lease)

    @property
    def holder(self) -> str:
        assert self.body is not None
        return str(self.body["spec"]["holderIdentity"])

    @property
    def version(self) -> str:
        assert self.body is not None
        return str(self.body["metadata"]["resourceVersion"])

    def _answer(self) -> None:
        if self.away:
            raise ApiUnreachable("no route")

    def _store(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        self.body = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.writes)}}
        return self.body


class Time:
    """Every pause takes its time at once; whatever is to happen at a moment happens in the pause before."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events: list[tuple[float, Callable[[], None]]] = []

    async def sleep(self, seconds: float) -> None:
        assert self.now < 2000, "waited for ever"
        self.now += max(seconds, 0.01)
        for event in [one for one in self.events if one[0] <= self.now]:
            self.events.remove(event)
            event[1]()
        await asyncio.sleep(0)


@pytest.fixture
def time() -> Time:
    return Time()


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def play(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return play


def candidate(leases: Leases, time: Time, identity: str) -> Leadership:
    return Leadership(
        kube=leases,  # type: ignore[arg-type]
        namespace="octavo-system",
        identity=identity,
        clock=lambda: time.now,
        now=lambda: datetime.fromtimestamp(time.now, UTC),
        sleep=time.sleep,
    )


@played
async def test_second_operator_waits_until_the_first_gives_the_lease_back(time: Time) -> None:
    leases = Leases()
    first, second = candidate(leases, time, "a"), candidate(leases, time, "b")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    for _ in range(3):
        await time.sleep(2)
    assert not waiting.done()
    await first.release()
    began = time.now
    await waiting
    assert (leases.holder, time.now - began < 5) == ("b", True)


@played
async def test_lease_of_a_killed_operator_is_taken_when_it_has_ended(time: Time) -> None:
    leases = Leases()
    await candidate(leases, time, "a").acquire()
    began = time.now
    await candidate(leases, time, "b").acquire()
    assert leases.holder == "b"
    assert LEASE_SECONDS <= time.now - began < LEASE_SECONDS + 5


@played
async def test_container_that_starts_again_in_its_pod_goes_on_at_once(time: Time) -> None:
    leases = Leases()
    await candidate(leases, time, "a").acquire()
    began = time.now
    await candidate(leases, time, "a").acquire()
    assert time.now == began


@played
async def test_lease_is_kept_through_a_short_outage_and_lost_in_a_long_one(time: Time) -> None:
    leases = Leases()
    holder = candidate(leases, time, "a")
    await holder.acquire()
    time.events = [
        (1005.0, lambda: setattr(leases, "away", True)),
        (1015.0, lambda: setattr(leases, "away", False)),
        (1100.0, lambda: setattr(leases, "away", True)),
    ]
    await holder.keep()
    assert 1100 < time.now <= 1100 + GIVE_UP_SECONDS
    assert leases.writes < 15, "one write for each renewal"


@played
async def test_holder_stops_at_once_when_somebody_else_has_the_lease(time: Time) -> None:
    """It was frozen, and another one took over meanwhile."""
    leases = Leases()
    holder = candidate(leases, time, "a")
    await holder.acquire()
    taken = {"metadata": {"resourceVersion": "x"}, "spec": {"holderIdentity": "b", "renewTime": "now"}}
    time.events = [(1005.0, lambda: setattr(leases, "body", taken))]
    await holder.keep()
    assert time.now < 1000 + GIVE_UP_SECONDS
    await holder.release()
    assert leases.holder == "b", "what is not ours is not given back"


@played
async def test_nothing_is_done_before_the_lease_is_held_and_all_ends_with_it(time: Time) -> None:
    leases = Leases()
    await candidate(leases, time, "a").acquire()
    done: list[tuple[str, float]] = []
    time.events = [(1100.0, lambda: setattr(leases, "away", True))]

    def note(what: str) -> Callable[[], None]:
        return lambda: done.append((what, time.now))

    await lead(candidate(leases, time, "b"), note("act"), end=note("end"))
    (acted, began), (ended, _) = done
    assert (acted, ended) == ("act", "end")
    assert began >= 1000 + LEASE_SECONDS


@played
async def test_operator_without_a_lease_acts_at_once() -> None:
    done: list[str] = []
    await lead(None, lambda: done.append("act"), end=lambda: done.append("end"))
    assert done == ["act"]
