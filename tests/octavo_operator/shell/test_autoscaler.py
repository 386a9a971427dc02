"""Rounds beside the passes: a pass never waits for an engine, and no failure ends the rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from octavo_operator.api.status import AutoscalingStatus, InferenceServiceStatus
from octavo_operator.decide.scaling import EngineReading, PlannerState, Reading, Unknown
from octavo_operator.decide.scaling.memory_text import format_memory, parse_memory
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.metadata import Owner
from octavo_operator.shell.autoscaler import Autoscaler, held_replicas
from octavo_operator.shell.cache import Cache, Key
from octavo_operator.shell.kinds import CONFIG_MAPS, Kind
from octavo_operator.shell.kube import ApiUnreachable, Kube
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.scaling_memory import MemoryWriter
from octavo_operator.shell.scrape import Scraper
from tests.octavo_operator.builders import (
    OWNER,
    make_deployment,
    make_pod,
    make_revision,
    make_spec,
    make_stored,
    make_target,
    make_world,
)
from tests.octavo_operator.decide.scaling.engines import make_reading

KEY = (OWNER.namespace, OWNER.name)
SLO = {"mode": "SLO", "maxReplicas": 4}


class FakeKube(Kube):
    """Keeps what is applied."""

    def __init__(self) -> None:
        self.applied: list[dict[str, Any]] = []
        self.refuse = False
        self.there: dict[str, Any] | None = None

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.refuse:
            raise ApiUnreachable("gone")
        self.applied.append(manifest)
        number = str(len(self.applied))
        metadata = {**manifest["metadata"], "resourceVersion": number, "uid": f"u{number}"}
        return {**manifest, "metadata": metadata}

    async def read(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.there


class FakeScraper(Scraper):
    """Answers what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.answer: Callable[[], Reading] = make_reading
        self.gate = asyncio.Event()
        self.gate.set()
        self.rounds = 0

    async def read(self, pods: Any, port: int) -> dict[str, Reading]:
        await self.gate.wait()
        self.rounds += 1
        return {pod.name: self.answer() for pod in pods}


@dataclass
class Play:
    """One autoscaler with everything around it."""

    kube: FakeKube = field(default_factory=FakeKube)
    scraper: FakeScraper = field(default_factory=FakeScraper)
    queue: WorkQueue[Key] = field(default_factory=lambda: WorkQueue(draw_jitter=lambda: 0.0))
    cache: Cache = field(default_factory=Cache)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.autoscaler = Autoscaler(
            scraper=self.scraper,
            memory=MemoryWriter(kube=self.kube, cache=self.cache, meters=Meters()),
            queue=self.queue,
            clock=lambda: self.now,
            interval_seconds=0.001,
        )

    async def rounds(self, number: int = 1) -> None:
        """Wait until so many more have ended."""
        wanted = self.scraper.rounds + number + 1
        async with asyncio.timeout(5):
            while self.scraper.rounds < wanted:
                await asyncio.sleep(0.002)


def play(scene: Callable[[Play], Awaitable[None]]) -> None:
    async def run() -> None:
        played = Play()
        try:
            await scene(played)
        finally:
            await played.autoscaler.close()

    asyncio.run(run())


def serving(**changes: Any) -> tuple[World, Target]:
    sections = changes.pop("sections", {})
    spec = make_spec(**{"autoscaling": SLO, **sections})
    revision = make_revision(spec)
    pod = make_pod(name="pod-0", revision=revision.hash, ready=True, ready_at=5.0)
    values: dict[str, Any] = {
        "spec": spec,
        "selected": revision.hash,
        "revisions": {revision.hash: make_stored(revision)},
        "deployments": {revision.hash: make_deployment(revision.hash)},
        "pods": (pod,),
    }
    return make_world(**{**values, **changes}), make_target(spec)


def test_pass_takes_its_number_at_once_when_no_engine_answers() -> None:
    async def scene(on: Play) -> None:
        on.scraper.gate.clear()
        decision = on.autoscaler.decide(*serving())
        assert (decision.replicas, decision.reason) == (1, "MetricsUnread")
        await asyncio.sleep(0.02)
        assert on.autoscaler.decide(*serving()) == decision
        assert on.scraper.rounds == 0

    play(scene)


def test_round_wakes_the_service_when_the_number_changes() -> None:
    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving())
        await on.rounds()
        assert await on.queue.take() == KEY
        on.queue.done(KEY)
        await on.rounds(3)
        assert on.queue.depth() == 0, "the same again is no news"
        on.scraper.answer = lambda: make_reading(waiting=300.0)
        await on.rounds(2)
        assert on.queue.depth() == 1
        assert on.autoscaler.decide(*serving()).replicas == 4

    play(scene)


def test_words_are_renewed_once_a_minute() -> None:
    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving())
        await on.rounds(2)
        first = on.autoscaler.decide(*serving())
        on.now += 30
        on.scraper.answer = lambda: make_reading(running=7.0, kv_tokens_referenced=700.0)
        await on.rounds(2)
        assert on.autoscaler.decide(*serving()) == first
        on.now += 31
        await on.rounds(2)
        assert on.autoscaler.decide(*serving()) != first

    play(scene)


def test_rounds_go_on_when_one_fails() -> None:
    async def scene(on: Play) -> None:
        def fail() -> Reading:
            raise RuntimeError("a round that must not be the last")

        on.scraper.answer = fail
        on.autoscaler.decide(*serving())
        await on.rounds(2)
        on.scraper.answer = make_reading
        await on.rounds(2)
        assert on.autoscaler.decide(*serving()).figures is not None

    play(scene)


def test_blackout_keeps_the_number() -> None:
    async def scene(on: Play) -> None:
        on.scraper.answer = lambda: Unknown(reason="connection refused")
        world, target = serving(
            deployments={
                make_revision(make_spec(autoscaling=SLO)).hash: make_deployment(
                    make_revision(make_spec(autoscaling=SLO)).hash, wanted=3
                )
            }
        )
        on.autoscaler.decide(world, target)
        await on.rounds(5)
        decision = on.autoscaler.decide(world, target)
        assert (decision.replicas, decision.reason) == (3, "MetricsMissing")

    play(scene)


@pytest.mark.parametrize("sections", [{"autoscaling": None}, {"autoscaling": {**SLO, "mode": "External"}}])
def test_engines_are_not_read_when_their_load_decides_nothing(sections: dict[str, Any]) -> None:
    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving())
        await on.rounds()
        on.autoscaler.decide(*serving(sections={**sections, "replicas": 2}))
        await asyncio.sleep(0.01)
        before = on.scraper.rounds
        await asyncio.sleep(0.02)
        assert on.scraper.rounds == before
        assert list(on.autoscaler.published()) == []

    play(scene)


def test_advice_leaves_the_number_of_spec() -> None:
    async def scene(on: Play) -> None:
        on.scraper.answer = lambda: make_reading(waiting=300.0)
        world, target = serving(sections={"replicas": 2, "autoscaling": {**SLO, "mode": "Recommend"}})
        on.autoscaler.decide(world, target)
        await on.rounds(2)
        decision = on.autoscaler.decide(world, target)
        assert (decision.replicas, decision.recommended) == (2, 4)

    play(scene)


def memory_of(on: Play) -> PlannerState | None:
    found = on.cache.find(CONFIG_MAPS, OWNER.namespace, "chat-scaling")
    return parse_memory(found["data"]["memory.json"], now=1e9) if found else None


def test_memory_is_written_at_most_once_a_minute_and_at_the_end() -> None:
    kube = FakeKube()

    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving())
        await on.rounds(3)
        assert on.kube.applied == []
        on.now += 61
        await on.rounds(3)
        assert len(on.kube.applied) == 1
        assert memory_of(on) is not None
        on.now += 30
        await on.rounds(3)
        assert len(on.kube.applied) == 1
        await on.autoscaler.close()
        assert len(on.kube.applied) == 2
        assert on.kube.applied[-1]["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid
        kube.applied = on.kube.applied

    play(scene)
    assert len(kube.applied) == 2


def test_memory_is_not_written_when_the_service_is_suspended() -> None:
    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving(sections={"suspend": True}))
        on.now += 61
        await on.rounds(3)
        await on.autoscaler.close()
        assert on.kube.applied == []

    play(scene)


def test_memory_of_somebody_else_is_left_alone() -> None:
    async def scene(on: Play) -> None:
        on.kube.there = {"metadata": {"name": "chat-scaling", "namespace": OWNER.namespace}}
        on.autoscaler.decide(*serving())
        await on.rounds(1)
        on.now += 61
        await on.rounds(3)
        assert on.kube.applied == []
        assert on.autoscaler.decide(*serving()).figures is not None

    play(scene)


def test_rounds_go_on_when_the_memory_cannot_be_written() -> None:
    async def scene(on: Play) -> None:
        on.kube.refuse = True
        on.autoscaler.decide(*serving())
        await on.rounds(1)
        on.now += 61
        await on.rounds(3)
        assert on.autoscaler.decide(*serving()).figures is not None
        on.kube.refuse = False

    play(scene)


def test_a_restarted_operator_goes_on_with_what_was_written() -> None:
    """The headroom of yesterday, for one."""
    remembered = PlannerState(cold_starts=(77.0,), seen_at=990.0)

    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving(scaling_memory=format_memory(remembered)))
        await on.rounds(2)
        figures = on.autoscaler.decide(*serving()).figures
        assert figures is not None
        assert figures.cold_start_seconds == 77.0

    play(scene)


@pytest.mark.parametrize("text", ["", "garbage", '{"version":1,"state":{"wanted":5}}'])
def test_a_memory_that_cannot_be_read_is_none(text: str) -> None:
    async def scene(on: Play) -> None:
        on.autoscaler.decide(*serving(scaling_memory=text))
        await on.rounds(2)
        assert on.autoscaler.decide(*serving()).figures is not None

    play(scene)


def test_costs_are_shared_by_services_of_one_kind() -> None:
    async def scene(on: Play) -> None:
        steps = make_reading().steps

        def busy() -> EngineReading:
            on.now += 10.0
            done = on.now * 10
            return make_reading(
                at=on.now,
                steps=type(steps)(
                    steps=done,
                    seconds=done * 0.05,
                    prefill_tokens=0,
                    context_tokens=done * 100,
                    sequences=done,
                ),
            )

        on.scraper.answer = busy
        on.autoscaler.decide(*serving())
        await on.rounds(40)
        on.scraper.gate.clear()
        other = Owner(namespace="prod", name="other", uid="9")
        world, target = serving(owner=other)
        on.scraper.answer = make_reading
        on.autoscaler.decide(world, target)
        on.scraper.gate.set()
        await on.rounds(4)
        decided = {key: decision for key, _, decision in on.autoscaler.published()}
        first, second = decided[KEY].figures, decided["prod", "other"].figures
        assert first is not None and second is not None
        assert second.capacity.tpot_seconds == pytest.approx(first.capacity.tpot_seconds, rel=0.5)

    play(scene)


def test_an_object_of_the_same_name_begins_without_memory() -> None:
    async def scene(on: Play) -> None:
        on.scraper.answer = lambda: make_reading(waiting=300.0)
        on.autoscaler.decide(*serving())
        await on.rounds(2)
        assert on.autoscaler.decide(*serving()).replicas == 4
        reborn = Owner(namespace=OWNER.namespace, name=OWNER.name, uid="other")
        assert on.autoscaler.decide(*serving(owner=reborn)).reason == "MetricsUnread"

    play(scene)


def test_number_held_is_what_was_decided_when_an_exchange_took_some_of_the_serving_pods() -> None:
    status = InferenceServiceStatus(
        autoscaling=AutoscalingStatus(desired_replicas=3, reason="LoadOnTarget", message="")
    )
    deployments = {"old": make_deployment("old", wanted=1), "new": make_deployment("new", wanted=2)}
    world = make_world(
        spec=make_spec(autoscaling=SLO), status=status, selected="old", deployments=deployments
    )
    policy = world.spec.autoscaling
    assert policy is not None
    assert held_replicas(world, policy) == 3
