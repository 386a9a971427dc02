"""Kinds of other projects: found where they are, looked for again when they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from octavo_operator.shell.kinds import HTTP_ROUTES, INFERENCE_POOLS, Kind
from octavo_operator.shell.kube import ApiUnreachable, Kube
from octavo_operator.shell.served import RETRY_SECONDS, ServedKinds


class FakeKube(Kube):
    """Serves what the test says, and counts how often it is asked."""

    def __init__(self, *served: Kind) -> None:
        self.served = set(served)
        self.asked: list[str] = []
        self.is_down = False

    async def serves(self, kind: Kind) -> bool:
        self.asked.append(kind.name)
        if self.is_down:
            raise ApiUnreachable("no answer")
        return kind in self.served


class Scene:
    def __init__(self, *served: Kind) -> None:
        self.kube = FakeKube(*served)
        self.now = 0.0
        self.kinds = ServedKinds(self.kube, clock=lambda: self.now)

    def names(self, *wanted: str) -> frozenset[str]:
        return asyncio.run(self.kinds.names(wanted))

    def do(self, what: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await what()

        asyncio.run(run())


def test_kinds_of_the_start_are_those_that_are_served() -> None:
    scene = Scene(HTTP_ROUTES)
    scene.do(scene.kinds.look_all)
    assert scene.kinds.kinds == (HTTP_ROUTES,)
    assert scene.names() == {"HTTPRoute"}


def test_served_kind_is_not_asked_for_again() -> None:
    scene = Scene(HTTP_ROUTES)
    scene.do(scene.kinds.look_all)
    scene.now = 10 * RETRY_SECONDS
    scene.names("HTTPRoute")
    assert scene.kube.asked == ["HTTPRoute", "InferencePool"]


def test_definition_installed_later_is_found_when_somebody_wants_it() -> None:
    scene = Scene()
    scene.do(scene.kinds.look_all)
    scene.kube.served.add(INFERENCE_POOLS)
    assert scene.names("InferencePool") == frozenset()
    scene.now = RETRY_SECONDS
    assert scene.names("HTTPRoute") == frozenset()
    assert scene.names("InferencePool") == {"InferencePool"}


def test_absent_kind_is_looked_for_at_intervals_only() -> None:
    scene = Scene()
    for _ in range(100):
        scene.names("HTTPRoute")
    assert scene.kube.asked == ["HTTPRoute"]


def test_unreachable_api_server_is_not_taken_for_an_answer() -> None:
    scene = Scene(HTTP_ROUTES)
    scene.kube.is_down = True
    assert scene.names("HTTPRoute") == frozenset()
    scene.kube.is_down = False
    scene.now = RETRY_SECONDS
    assert scene.names("HTTPRoute") == {"HTTPRoute"}


def test_definition_that_was_removed_is_forgotten() -> None:
    scene = Scene(HTTP_ROUTES)
    scene.do(scene.kinds.look_all)
    scene.kinds.forget(HTTP_ROUTES)
    assert scene.names() == frozenset()
