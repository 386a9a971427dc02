"""The gatekeeper against engines that answer over real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo_operator.api.spec import ServiceLevelObjective
from octavo_operator.decide.gates.attainment import Attained
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.revision import Revision
from octavo_operator.desired.rollout_record import RolloutRecord
from octavo_operator.shell.engines import Engines, parse_attained
from octavo_operator.shell.gatekeeper import Gatekeeper, GateReport
from octavo_operator.shell.probe_runs import ProbeRuns
from tests.cluster.fake_engines import FakeEngines
from tests.octavo_operator.builders import (
    make_deployment,
    make_pin,
    make_pod,
    make_revision,
    make_spec,
    make_stored,
    make_world,
)

OLD, NEW = "1" * 40, "2" * 40
GATE = {"gate": {"quality": {"configMapRef": {"name": "probes"}}}}


def spec_of(revision: str, **rollout: Any) -> Any:
    model = {"uri": "hf://organization/model", "revision": revision}
    return make_spec(model=model, rollout=rollout)


class ScriptedKube:
    """Holds one ConfigMap."""

    def __init__(self, probes: Any) -> None:
        self.data = {"probes.json": json.dumps(probes)} if probes is not None else None

    async def read(self, *_: object) -> dict[str, Any] | None:
        return {"data": self.data} if self.data is not None else None


def revision_of(commit: str, **rollout: Any) -> Revision:
    return make_revision(spec_of(commit, **rollout), commit)


def pod_of(engines: FakeEngines, revision: Revision, **changes: Any) -> Any:
    pod = {"metadata": {"uid": revision.hash}, "spec": revision.template["spec"]}
    address = engines.start(pod, changes.pop("digest", "d"))
    return make_pod(revision.hash, name=f"pod-{revision.hash}", address=address, ready=True, **changes)


def world_of(engines: FakeEngines, *, learned: Learned = Learned(), **rollout: Any) -> World:  # noqa: B008
    old, new = revision_of(OLD, **rollout), revision_of(NEW, **rollout)
    return make_world(
        spec=spec_of(NEW, **rollout),
        selected=old.hash,
        revisions={
            old.hash: make_stored(old, learned=learned),
            new.hash: make_stored(new, number=2, proven=False),
        },
        deployments={one.hash: make_deployment(one.hash) for one in (old, new)},
        pods=(pod_of(engines, old), pod_of(engines, new)),
    )


def target_of(world: World, **rollout: Any) -> Target:
    return Target(pin=make_pin(world.spec, NEW), revision=revision_of(NEW, **rollout))


@pytest.fixture
def engines() -> Any:
    made = FakeEngines()
    yield made
    made.close()


@asynccontextmanager
async def keeper(probes: Any) -> AsyncIterator[Callable[..., Any]]:
    asked, woken = Engines(), asyncio.Event()
    runs = ProbeRuns(asked, tell=lambda key: woken.set(), clock=time.monotonic)
    gatekeeper = Gatekeeper(ScriptedKube(probes), asked, runs)  # type: ignore[arg-type]

    async def look(world: World, target: Target, *, now: float = 0.0, wait: bool = False) -> GateReport:
        report = await gatekeeper.look(world, target, now=now)
        if wait:
            await asyncio.wait_for(woken.wait(), timeout=10)
            woken.clear()
        return report

    try:
        yield look
    finally:
        await runs.close()
        await asked.close()


def test_load_gate_passes_what_was_loaded_and_fails_another_commit(engines: FakeEngines) -> None:
    world = world_of(engines)

    async def play() -> None:
        async with keeper(None) as look:
            passed = await look(world, target_of(world))
            assert passed.facts.load.state == "Passed"
            engines.script(NEW).loaded = OLD
            failed = await look(world, target_of(world))
            assert (failed.facts.load.state, failed.facts.load.reason) == ("Failed", "LoadGateFailed")
            engines.script(NEW).silent = True
            silent = await look(world, target_of(world))
            assert (silent.facts.load.state, silent.again_seconds) == ("Pending", 2.0)
            assert "503" in silent.facts.load.message

    asyncio.run(play())


def test_nobody_is_asked_when_spec_wants_no_load_gate(engines: FakeEngines) -> None:
    world = world_of(engines, gate={"load": False})

    async def play() -> None:
        async with keeper(None) as look:
            report = await look(world, target_of(world, gate={"load": False}))
            assert (report.facts.load.reason, engines.asked) == ("NotAsked", [])

    asyncio.run(play())


def test_candidate_is_pending_while_none_of_its_pods_is_seen_ready(engines: FakeEngines) -> None:
    world = replace(world_of(engines), pods=())

    async def play() -> None:
        async with keeper(None) as look:
            assert (await look(world, target_of(world))).facts.load.state == "Pending"

    asyncio.run(play())


def test_quality_gate_records_the_old_answers_first_and_then_compares(engines: FakeEngines) -> None:
    probes = [{"prompt": "Capital?", "expect": "Paris"}, {"prompt": "Story"}]
    world = world_of(engines, **GATE)
    engines.script(OLD).answers = {"Story": "once"}
    engines.script(NEW).answers = {"Capital?": "It is Paris.", "Story": "twice"}

    async def play() -> None:
        async with keeper(probes) as look:
            target = target_of(world, **GATE)
            asking = await look(world, target, wait=True)
            assert not asking.facts.answers_recorded
            assert asking.facts.quality.reason == "RecordingAnswers"
            recorded = await look(world, target)
            assert recorded.facts.answers_recorded
            assert list(recorded.answers) == [world.selected]
            known = world_of(engines, learned=Learned(answers=recorded.answers[world.selected or ""]), **GATE)
            assert (await look(known, target, wait=True)).facts.quality.reason == "AskingProbes"
            judged = await look(known, target)
            assert judged.facts.quality.state == "Failed"
            assert "1 of 2 probes match" in judged.facts.quality.message
            assert "answered 'once', got 'twice'" in judged.facts.quality.message

    asyncio.run(play())


def test_old_answers_are_compared_though_somebody_deleted_the_record_for_them(engines: FakeEngines) -> None:
    world = world_of(engines, **GATE)
    assert world.selected is not None
    kept = {one: stored for one, stored in world.revisions.items() if one != world.selected}
    template = revision_of(OLD, **GATE).template
    deployments = {**world.deployments, world.selected: make_deployment(world.selected, template=template)}
    status = world.status.model_copy(update={"current_revision": world.selected})
    world = replace(world, revisions=kept, deployments=deployments, status=status)
    for commit in (OLD, NEW):
        engines.script(commit).answers = {"Story": "once"}

    async def play() -> None:
        async with keeper([{"prompt": "Story"}]) as look:
            await look(world, target_of(world, **GATE), wait=True)
            asking = await look(world, target_of(world, **GATE), wait=True)
            assert asking.facts.quality.reason == "AskingProbes"
            assert (await look(world, target_of(world, **GATE))).facts.quality.state == "Passed"
            assert [path for _, path in engines.asked].count("/v1/completions") == 2

    asyncio.run(play())


def test_quality_gate_asks_only_the_candidate_when_all_probes_say_what_they_expect(
    engines: FakeEngines,
) -> None:
    world = world_of(engines, **GATE)
    engines.script(NEW).answers = {"Capital?": "Paris"}

    async def play() -> None:
        async with keeper([{"prompt": "Capital?", "expect": "^Paris$"}]) as look:
            await look(world, target_of(world, **GATE), wait=True)
            judged = await look(world, target_of(world, **GATE))
            assert judged.facts.quality.state == "Passed"
            completions = [commit for commit, path in engines.asked if path == "/v1/completions"]
            assert completions == [NEW]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("probes", "reason"), [(None, "ProbesMissing"), ([], "ProbesInvalid")], ids=["missing", "malformed"]
)
def test_probes_that_cannot_be_read_are_read_again(engines: FakeEngines, probes: Any, reason: str) -> None:
    world = world_of(engines, **GATE)

    async def play() -> None:
        async with keeper(probes) as look:
            report = await look(world, target_of(world, **GATE))
            assert (report.facts.quality.state, report.facts.quality.reason) == ("Pending", reason)
            assert report.again_seconds == 10.0
            assert "ConfigMap probes" in report.facts.quality.message

    asyncio.run(play())


def test_engine_that_does_not_answer_a_probe_is_told_and_asked_again(engines: FakeEngines) -> None:
    world = world_of(engines, gate={"load": False, **GATE["gate"]})
    target = target_of(world, gate={"load": False, **GATE["gate"]})
    engines.script(NEW).silent = True

    async def play() -> None:
        async with keeper([{"prompt": "Capital?", "expect": "Paris"}]) as look:
            await look(world, target, wait=True)
            report = await look(world, target)
            assert report.facts.quality.state == "Pending"
            assert "503" in report.facts.quality.message

    asyncio.run(play())


def test_run_that_breaks_unexpectedly_is_told_too(
    engines: FakeEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(engines, **GATE)

    async def broken(*_: object) -> str:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Engines, "complete", broken)

    async def play() -> None:
        async with keeper([{"prompt": "Capital?", "expect": "Paris"}]) as look:
            await look(world, target_of(world, **GATE), wait=True)
            report = await look(world, target_of(world, **GATE))
            assert "a mistake of ours" in report.facts.quality.message

    asyncio.run(play())


def page(ttft: list[int], tpot: list[int]) -> str:
    """Counts up to 1 s, 2 s and all."""
    lines = []
    for name, counts in ((contract.TTFT_SECONDS, ttft), (contract.TPOT_SECONDS, tpot)):
        lines.append(f"# TYPE {name} histogram")
        bounds = ("1.0", "2.0", "+Inf")
        lines += [f'{name}_bucket{{le="{b}"}} {c}' for b, c in zip(bounds, counts, strict=True)]
    return "\n".join(lines) + "\n"


def test_histogram_is_read_at_the_objective() -> None:
    slo = ServiceLevelObjective(ttft_milliseconds=2000, tpot_milliseconds=1500)
    attained = parse_attained(page([5, 8, 10], [7, 8, 9]), slo)
    assert attained == Attained(first_tokens=10, first_in_time=8, paced=9, paced_in_time=7)


HALF = page([1, 2, 3], [1, 2, 3]).split("# TYPE octavo_request")[0]


@pytest.mark.parametrize("text", ["", "other 1\n", HALF])
def test_page_without_the_histograms_is_unknown(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        parse_attained(text, ServiceLevelObjective())


def test_slo_gate_counts_a_step_from_its_beginning(engines: FakeEngines) -> None:
    rollout = {"strategy": "Canary", "gate": {"load": False, "slo": {"minRequests": 10}}}
    world = world_of(engines, **rollout)
    target = target_of(world, **rollout)
    new = target.revision
    assert new is not None
    record = RolloutRecord(passed="seen", step_at=1, weight=10)
    stored = make_stored(new, number=2, proven=False, learned=Learned(record=record))
    world = replace(world, revisions={**world.revisions, new.hash: stored})
    engines.script(OLD).metrics = page([100, 100, 100], [100, 100, 100])
    engines.script(NEW).metrics = page([9, 9, 9], [9, 9, 9])

    async def play() -> None:
        async with keeper(None) as look:
            begun = await look(world, target, now=50.0)
            assert (begun.facts.slo.state, begun.facts.slo_since) == ("Inconclusive", 50.0)
            engines.script(OLD).metrics = page([1100, 1100, 1100], [1100, 1100, 1100])
            engines.script(NEW).metrics = page([9, 59, 109], [9, 109, 109])
            ended = await look(world, target, now=80.0)
            assert (ended.facts.slo.state, ended.facts.slo_since) == ("Failed", 50.0)
            assert "50.0 % of 100 against 100.0 % of 1000" in ended.facts.slo.message

    asyncio.run(play())
