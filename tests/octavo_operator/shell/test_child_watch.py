"""The watch on children: what it takes, what it drops, how it goes on and begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from octavo_operator.shell.cache import Cache, Key
from octavo_operator.shell.child_watch import ChildWatch
from octavo_operator.shell.kinds import DEPLOYMENTS, HTTP_ROUTES, INFERENCE_SERVICES, Kind
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube, Page, read_event, read_lines
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.served import ServedKinds

KEY: Key = ("prod", "chat")


def route(version: int, service: str = "chat") -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "prod",
            "name": "chat",
            "uid": "r",
            "resourceVersion": str(version),
            "labels": {"octavo.dev/service": service},
        }
    }


class FakeKube(Kube):
    """Has one kind only: a listing, then one watch after the other, events and the exception that ends it."""

    def __init__(self, *watches: list[Any], kind: Kind = HTTP_ROUTES) -> None:
        self.kind = kind
        self.watches = list(watches)
        self.listed: list[list[dict[str, Any]]] = []
        self.served = {HTTP_ROUTES}
        self.asked: list[str] = []
        self.selectors: set[str] = set()

    async def serves(self, kind: Kind) -> bool:
        return kind in self.served

    async def list_all(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        self.selectors.add(selector)
        if kind is self.kind:
            self.asked.append("list")
        for number, items in enumerate(self.listed if kind is self.kind else [[]]):
            yield Page(items=items, version=str(10 + number))
        if not self.listed:
            yield Page(items=[], version="0")

    async def watch(
        self, kind: Kind, namespace: str, selector: str, *, version: str
    ) -> AsyncIterator[tuple[str, Any]]:
        self.selectors.add(selector)
        if kind is not self.kind:
            await asyncio.Event().wait()
        if not self.watches:
            raise Enough
        self.asked.append(version)
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event


class Enough(BaseException):
    """The scene has been played."""


class Scene:
    def __init__(self, *watches: list[Any], kind: Kind = HTTP_ROUTES) -> None:
        self.kube, self.cache = FakeKube(*watches, kind=kind), Cache()
        self.served = ServedKinds(self.kube)
        self.pauses = 0
        self.num_listed = 0
        self.keys: list[Key] = []

    def play(self) -> None:
        async def pause(_: float) -> None:
            self.pauses += 1
            if self.pauses > 10:
                raise Enough
            await asyncio.sleep(0)

        def on_listed() -> None:
            self.num_listed += 1

        async def run() -> None:
            queue: WorkQueue[Key] = WorkQueue(draw_jitter=lambda: 0.0)
            watch = ChildWatch(
                kube=self.kube,
                cache=self.cache,
                queue=queue,
                served=self.served,
                namespace="",
                on_listed=on_listed,
                pause=pause,
            )
            with pytest.raises(BaseExceptionGroup):
                await watch.run()
            await asyncio.wait_for(watch.wait_listed(), timeout=1)
            self.keys = [await queue.take() for _ in range(queue.depth())]

        asyncio.run(run())


def test_what_is_told_goes_into_the_cache_and_wakes_its_owner() -> None:
    scene = Scene([("ADDED", route(1)), ("MODIFIED", route(2))])
    scene.play()
    found = scene.cache.find(HTTP_ROUTES, *KEY)
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "2"
    assert scene.keys == [KEY]


def test_deleted_object_is_dropped_and_wakes_its_owner() -> None:
    scene = Scene([("ADDED", route(1)), ("DELETED", route(2))])
    scene.play()
    assert scene.cache.find(HTTP_ROUTES, *KEY) is None
    assert scene.keys == [KEY]


def test_new_watch_that_tells_what_is_known_wakes_nobody() -> None:
    scene = Scene([("ADDED", route(1))])
    scene.cache.put(HTTP_ROUTES, route(1))
    scene.play()
    assert scene.keys == []


def test_pods_of_others_are_never_asked_for() -> None:
    scene = Scene([])
    scene.play()
    assert scene.kube.selectors == {"app.kubernetes.io/managed-by=octavo"}


def test_all_pages_of_a_listing_are_taken_and_the_watch_goes_on_from_the_first() -> None:
    scene = Scene([], kind=DEPLOYMENTS)
    scene.kube.listed = [[route(1)], [route(2) | {"metadata": route(2)["metadata"] | {"name": "other"}}]]
    scene.play()
    assert scene.cache.size() == 2
    assert scene.kube.asked[:2] == ["list", "10"]


def test_watch_that_ends_goes_on_where_it_was_and_lists_nothing_again() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
    scene = Scene([("ADDED", route(50)), bookmark], [], kind=DEPLOYMENTS)
    scene.play()
    assert scene.kube.asked == ["list", "0", "77"]
    assert scene.cache.size() == 1


def test_what_was_deleted_before_a_new_listing_is_asked_for() -> None:
    """It is in no listing: the cache has to be compared."""
    scene = Scene([ApiRefused(410, "too old")], [], kind=DEPLOYMENTS)
    scene.play()
    assert scene.kube.asked == ["list", "0", "list", "0"]
    assert scene.num_listed >= 2


def test_event_that_makes_no_sense_does_not_leave_the_operator_deaf() -> None:
    scene = Scene([("ADDED", {"metadata": {}})], [("ADDED", route(1))], kind=DEPLOYMENTS)
    scene.play()
    assert scene.keys == [KEY]


def test_object_that_changes_hands_wakes_both_owners() -> None:
    scene = Scene([("ADDED", route(2, service="other"))])
    scene.cache.put(HTTP_ROUTES, route(1))
    scene.play()
    assert set(scene.keys) == {KEY, ("prod", "other")}


@pytest.mark.parametrize(
    "end", [ApiUnreachable("broke"), ApiRefused(410, "too old"), ApiRefused(500, "internal")], ids=str
)
def test_watch_that_broke_is_begun_anew(end: Exception) -> None:
    scene = Scene([end], [("ADDED", route(1))])
    scene.play()
    assert scene.cache.find(HTTP_ROUTES, *KEY) is not None
    assert scene.served.kinds == (HTTP_ROUTES,)


def test_removed_definition_is_forgotten_and_no_longer_watched() -> None:
    scene = Scene([ApiRefused(404, "not found")], [("ADDED", route(1))])
    scene.cache.put(INFERENCE_SERVICES, {"metadata": {"namespace": "prod", "name": "other"}})
    scene.play()
    assert scene.served.kinds == ()
    assert scene.keys == [("prod", "other")]
    assert scene.cache.find(HTTP_ROUTES, *KEY) is None


def test_failure_inside_the_stream_is_a_refusal() -> None:
    with pytest.raises(ApiRefused, match="too old") as caught:
        read_event({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    assert caught.value.status == 410


def test_lines_are_put_together_whatever_their_length() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b'{"a"', b": 1}\n{", b"}\n" + b"x" * 300_000, b"\n"):
            yield chunk

    async def run() -> list[bytes]:
        return [line async for line in read_lines(chunks())]

    assert asyncio.run(run()) == [b'{"a": 1}', b"{}", b"x" * 300_000]
