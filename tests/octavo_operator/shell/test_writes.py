"""Writing children: what a user is told, what is tried again, and what ends."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from octavo_operator.desired.service import build_service
from octavo_operator.shell.__main__ import build_gatekeeper
from octavo_operator.shell.autoscaler import Autoscaler
from octavo_operator.shell.cache import Cache, Key
from octavo_operator.shell.engine_reports import EngineReports
from octavo_operator.shell.fetch_progress import FetchProgress
from octavo_operator.shell.hub import Hub
from octavo_operator.shell.hub_manifest import Manifests
from octavo_operator.shell.kinds import INFERENCE_SERVICES, SERVICES
from octavo_operator.shell.kube import ApiRefused, Kube, cut_bytes, read_refusal
from octavo_operator.shell.lookup import Lookup
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.reconcile import ChildRefused, Pass, Reconciler, again_after
from octavo_operator.shell.resolver_pods import ResolverPods
from octavo_operator.shell.scaling_memory import MemoryWriter
from octavo_operator.shell.scouts import Scouts
from octavo_operator.shell.scrape import Scraper
from octavo_operator.shell.served import ServedKinds
from octavo_operator.shell.settings import read_settings
from octavo_operator.shell.targets import Targets
from tests.octavo_operator.builders import NOW, OWNER
from tests.octavo_operator.shell.asking import make_upstream

ValueT = TypeVar("ValueT")
SERVICE = build_service(OWNER, port=8000, serving="aaa")


class FakeKube(Kube):
    """Stores one Service; `add` is what a policy of the cluster or a person adds to each write."""

    def __init__(self, *, refuse: ApiRefused | None = None, add: dict[str, str] | None = None) -> None:
        self.refuse = refuse
        self.add = add or {}
        self.calls: list[str] = []
        self.stored: dict[str, Any] | None = None

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self.write("apply", manifest)

    async def overwrite(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self.write("overwrite", manifest)

    def write(self, verb: str, manifest: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(verb)
        if self.refuse is not None:
            raise self.refuse
        made = copy.deepcopy(manifest)
        made["spec"]["selector"] |= self.add
        if self.stored is not None and made["spec"] == self.stored["spec"]:
            return self.stored
        version = 1 if self.stored is None else int(self.stored["metadata"]["resourceVersion"]) + 1
        made["metadata"] |= {"uid": "u", "resourceVersion": str(version)}
        self.stored = made
        return made


def write_once(kube: FakeKube, cache: Cache) -> bool:
    """True if another pass is to follow at once."""
    return with_reconciler(kube, cache, lambda reconciler: reconciler._apply(SERVICE))


def with_reconciler(kube: Kube, cache: Cache, script: Callable[[Reconciler], Awaitable[ValueT]]) -> ValueT:
    async def run() -> ValueT:
        hub, scraper, meters = Hub("http://hub.test"), Scraper(clock=lambda: 0.0), Meters()
        settings, upstream = read_settings({"OCTAVO_ENGINE_IMAGE": "engine:1"}), make_upstream(hub.resolve)
        pods = ResolverPods(kube=kube, cache=cache, meters=meters)
        lookup = Lookup(settings, hub, Manifests(hub), pods, upstream)
        queue: WorkQueue[Key] = WorkQueue(draw_jitter=lambda: 0.0)
        reconciler = Reconciler(
            kube=kube,
            cache=cache,
            targets=Targets(settings, lookup, draw_jitter=lambda: 0.0),
            upstream=upstream,
            scouts=Scouts(lookup=lookup, resolver_pods=pods, interval_seconds=0.0, draw_jitter=lambda: 0.0),
            autoscaler=Autoscaler(
                scraper=scraper,
                memory=MemoryWriter(kube=kube, cache=cache, meters=meters),
                queue=queue,
                clock=lambda: 0.0,
            ),
            reports=EngineReports(scraper),
            progress=FetchProgress(),
            gatekeeper=build_gatekeeper(kube, queue),
            served=ServedKinds(kube),
            meters=meters,
            hub_endpoint="",
            clock=lambda: NOW,
        )
        try:
            return await script(reconciler)
        finally:
            await hub.close()
            await scraper.close()

    return asyncio.run(run())


def test_policy_that_undoes_every_write_is_not_fought_without_end() -> None:
    kube, cache = FakeKube(add={"policy": "on"}), Cache()
    assert write_once(kube, cache)
    assert not write_once(kube, cache)
    assert kube.calls == ["apply", "overwrite"] * 2


def test_what_is_as_it_should_be_is_not_written() -> None:
    kube, cache = FakeKube(), Cache()
    assert write_once(kube, cache)
    assert not write_once(kube, cache)
    assert kube.calls == ["apply"]
    assert cache.find(SERVICES, OWNER.namespace, OWNER.name) is not None


@pytest.mark.parametrize(
    ("status", "message", "lasting"),
    [
        pytest.param(403, "exceeded quota", False, id="quota"),
        pytest.param(403, "admission webhook x denied the request", False, id="policy"),
        pytest.param(500, "failed calling webhook x", False, id="webhook down"),
        pytest.param(
            422, "Deployment is invalid: spec.template.spec.tolerations", True, id="invalid overlay"
        ),
        pytest.param(400, "Deployment in version v1 cannot be handled", True, id="overlay cannot be read"),
        pytest.param(
            500,
            "failed to create typed patch object: .spec.template.spec.nodeSelector.gpu: expected string",
            True,
            id="overlay with a number where text must be",
        ),
    ],
)
def test_bad_overlay_stalls_a_service_and_a_quota_does_not(status: int, message: str, lasting: bool) -> None:
    """What the API server would never take was in progress for ever."""
    refused = read_refusal(status, f'{{"message": "{message}"}}'.encode())
    with pytest.raises(ChildRefused, match=message) as told:
        write_once(FakeKube(refuse=refused), Cache())
    refusal = told.value.refusal
    assert (refusal.reason, refusal.lasting) == ("ChildRefused", lasting)
    assert ("correct spec" in refusal.message) == lasting
    assert again_after(refusal) == (300 if lasting else 30)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(429, "slow down", id="too many requests"),
        pytest.param(409, "conflict", id="conflict"),
        pytest.param(500, "etcdserver: leader changed", id="no leader"),
        pytest.param(503, "unavailable", id="restarting"),
    ],
)
def test_api_server_out_of_order_does_not_make_a_service_unready(status: int, message: str) -> None:
    """It is only tried again."""
    refused = read_refusal(status, f'{{"message": "{message}"}}'.encode())
    with pytest.raises(ApiRefused, match=message):
        write_once(FakeKube(refuse=refused), Cache())


@pytest.mark.parametrize("text", ["×" * 2000, "a" + "é" * 2000, "\ud800" * 2000])
def test_event_message_fits_in_bytes(text: str) -> None:
    assert 1020 < len(cut_bytes(text, 1024).encode()) <= 1024


class Doomed(Kube):
    """An API server with a namespace that is being deleted."""

    def __init__(self) -> None:
        self.refused = 0

    async def _request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if method == "GET":
            raise ApiRefused(404, "not found")
        if path.endswith("/status"):
            return {**BODY, "status": {}}
        self.refused += 1
        raise ApiRefused(403, "it is being terminated", frozenset({"NamespaceTerminating"}))


BODY: dict[str, Any] = {
    "metadata": {
        "namespace": OWNER.namespace,
        "name": OWNER.name,
        "uid": OWNER.uid,
        "generation": 1,
        "resourceVersion": "1",
    },
    "spec": {"model": {"uri": "pvc://models/tiny"}},
}


def test_namespace_that_is_being_deleted_is_told_once_and_then_left_alone() -> None:
    """Each child that went with it woke the operator, which tried to make it again: a dozen refusals."""
    kube, cache = Doomed(), Cache()
    cache.put(INFERENCE_SERVICES, BODY)
    key = (OWNER.namespace, OWNER.name)

    async def many(reconciler: Reconciler) -> None:
        for _ in range(10):
            assert await reconciler.reconcile(key) == Pass()
        assert kube.refused == 1
        reborn = {**BODY, "metadata": {**BODY["metadata"], "uid": "another", "resourceVersion": "2"}}
        cache.put(INFERENCE_SERVICES, reborn)
        await reconciler.reconcile(key)
        assert kube.refused == 2, "a namespace of the same name is another one"

    with_reconciler(kube, cache, many)
