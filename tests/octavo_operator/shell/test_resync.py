"""The cache against the API server: what no watch has told, and what came in the wrong order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from octavo_operator.shell import resync
from octavo_operator.shell.cache import Cache, Key
from octavo_operator.shell.kinds import DEPLOYMENTS, INFERENCE_SERVICES, Kind
from octavo_operator.shell.kube import Kube, Page
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.resync import Resync
from tests.octavo_operator.builders import OWNER

KEY = (OWNER.namespace, OWNER.name)


def body(name: str, *, version: int, uid: str = "u", service: str = OWNER.name) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": OWNER.namespace,
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"octavo.dev/service": service},
        }
    }


class FakeKube(Kube):
    """Lists what the test says is there; `meanwhile` happens while the answer is under way."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = {one["metadata"]["name"]: one for one in bodies}
        self.meanwhile: list[Any] = []

    async def list_metadata(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        """Each on a page of its own."""
        listed = list(self.bodies.values()) if kind is DEPLOYMENTS else []
        for happen in self.meanwhile:
            happen()
        for one in listed:
            yield Page(items=[one], version="1")

    async def read_listed(
        self, kind: Kind, namespace: str, name: str, *, selector: str
    ) -> dict[str, Any] | None:
        return self.bodies.get(name)


def compare(cache: Cache, kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """The keys that are to be looked at again."""
    monkeypatch.setattr(resync, "SETTLE_SECONDS", 0.0)

    async def run() -> list[Key]:
        queue: WorkQueue[Key] = WorkQueue(draw_jitter=lambda: 0.0)
        comparison = Resync(kube=kube, cache=cache, queue=queue, namespace="", optional=tuple)
        await comparison.compare(DEPLOYMENTS)
        return [await queue.take() for _ in range(queue.depth())]

    return asyncio.run(run())


def holding(*bodies: dict[str, Any]) -> Cache:
    cache = Cache()
    for one in bodies:
        cache.put(DEPLOYMENTS, one)
    return cache


def test_deployment_deleted_in_a_watch_gap_is_missed_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = holding(body("chat-a", version=5), body("chat-b", version=6))
    assert compare(cache, FakeKube(body("chat-b", version=6)), monkeypatch) == [KEY]
    assert cache.find(DEPLOYMENTS, OWNER.namespace, "chat-a") is None
    assert cache.find(DEPLOYMENTS, OWNER.namespace, "chat-b") is not None


@pytest.mark.parametrize("version", [9, 2], ids=["newer", "of a restored etcd"])
def test_change_that_no_watch_told_is_taken(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = holding(body("chat-a", version=5))
    assert compare(cache, FakeKube(body("chat-a", version=version)), monkeypatch) == [KEY]
    found = cache.find(DEPLOYMENTS, OWNER.namespace, "chat-a")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == str(version)


def test_object_that_no_watch_told_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = holding()
    assert compare(cache, FakeKube(body("chat-a", version=5)), monkeypatch) == [KEY]
    assert cache.size() == 1


def test_nothing_is_done_when_cache_and_listing_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = holding(body("chat-a", version=5))
    assert compare(cache, FakeKube(body("chat-a", version=5)), monkeypatch) == []


def test_what_is_made_during_the_listing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, kube = holding(body("chat-a", version=5)), FakeKube()
    kube.meanwhile = [
        lambda: cache.put(DEPLOYMENTS, body("chat-a", version=7)),
        lambda: cache.put(DEPLOYMENTS, body("chat-b", version=8)),
    ]
    assert compare(cache, kube, monkeypatch) == []
    assert cache.size() == 2


def test_answer_that_is_read_after_the_deletion_brings_nothing_back() -> None:
    cache = holding(body("chat-a", version=5))
    cache.drop(DEPLOYMENTS, body("chat-a", version=9))
    cache.put(DEPLOYMENTS, body("chat-a", version=8))
    assert cache.size() == 0
    cache.put(DEPLOYMENTS, body("chat-a", version=10))
    assert cache.size() == 1, "its label was taken away and came back; it was never deleted"


def test_old_object_of_the_name_does_not_hide_the_new_one() -> None:
    cache = Cache()
    cache.put(INFERENCE_SERVICES, body(OWNER.name, version=50, uid="new"))
    cache.put(INFERENCE_SERVICES, body(OWNER.name, version=40, uid="old"))
    cache.drop(INFERENCE_SERVICES, body(OWNER.name, version=45, uid="old"))
    found = cache.service(KEY)
    assert found is not None
    assert found["metadata"]["uid"] == "new"


def test_child_whose_label_is_edited_leaves_nothing_behind() -> None:
    cache = holding(body("chat-a", version=5))
    moved_from = cache.put(DEPLOYMENTS, body("chat-a", version=6, service="other"))
    assert moved_from == KEY
    assert cache.size() == 1
    assert cache.drop(DEPLOYMENTS, body("chat-a", version=7)) == (OWNER.namespace, "other")
    assert cache.size() == 0


def test_comparison_waits_until_the_listing_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that starts beside a thousand services would else ask for each that it has not read yet."""
    monkeypatch.setattr(resync, "SETTLE_SECONDS", 0.05)
    compared: list[float] = []

    async def run() -> None:
        queue: WorkQueue[Key] = WorkQueue(draw_jitter=lambda: 0.0)
        comparison = Resync(kube=FakeKube(), cache=Cache(), queue=queue, namespace="", optional=tuple)

        async def compare(_: Kind) -> None:
            compared.append(asyncio.get_running_loop().time())

        monkeypatch.setattr(comparison, "compare", compare)
        task = asyncio.create_task(comparison.run())
        for _ in range(20):
            comparison.ask()
            await asyncio.sleep(0.01)
        assert compared == []
        await asyncio.sleep(0.3)
        assert compared != []
        task.cancel()

    asyncio.run(run())
