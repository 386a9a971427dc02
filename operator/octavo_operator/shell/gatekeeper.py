"""What the gates say of a candidate: asks its engines, and those of what serves.

Quick questions are asked in the pass itself; probes, which take their time, in the background.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import QualityGate, ServiceLevelObjective
from octavo_operator.decide.gates.asking import (
    Door,
    canary_step,
    candidate_of,
    door_of,
    is_cleared,
    ready_pods,
    serving_of,
)
from octavo_operator.decide.gates.attainment import Window, judge_attainment, look_again, open_window
from octavo_operator.decide.gates.load import judge_load
from octavo_operator.decide.gates.probes import (
    Probes,
    digest_probes,
    judge_quality,
    needs_reference,
    parse_probes,
    recall_answers,
    record_answers,
)
from octavo_operator.decide.rollout.values import NOT_ASKED, GateFacts, Verdict
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.revision import Revision
from octavo_operator.shell.cache import Key
from octavo_operator.shell.engines import Engines
from octavo_operator.shell.kinds import CONFIG_MAPS
from octavo_operator.shell.kube import Kube
from octavo_operator.shell.probe_runs import ProbeRuns, Run

AGAIN_SECONDS: Final = 2.0
"""Before an engine that did not say is asked again."""
PROBES_AGAIN_SECONDS: Final = 10.0
"""Before probes that cannot be read are read again: nothing tells us that somebody mended them."""
SAMPLE_SECONDS: Final = 15.0
"""Between two readings in a canary's step: what a pod counted after the last one is lost with it."""
NO_FACTS: Final = GateFacts()
NOT_READY: Final = Verdict(state="Pending", reason="NotReady", message="")
AFTER_LOAD: Final = Verdict(state="Pending", reason="LoadFirst", message="")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What is known now, what was recorded on the way, and when to ask again."""

    facts: GateFacts = NO_FACTS
    answers: dict[str, str] = field(default_factory=dict)
    again_seconds: float | None = None


class Gatekeeper:
    """Remembers the window of a canary's step; all else is in the world."""

    def __init__(self, kube: Kube, engines: Engines, runs: ProbeRuns) -> None:
        self._kube = kube
        self._engines = engines
        self._runs = runs
        self._windows: dict[Key, tuple[tuple[str, str, int], Window]] = {}

    def forget(self, key: Key) -> None:
        self._runs.forget(key)
        self._windows.pop(key, None)

    async def close(self) -> None:
        await self._runs.close()
        await self._engines.close()

    async def look(self, world: World, target: Target, *, now: float) -> GateReport:
        key = (world.owner.namespace, world.owner.name)
        candidate = candidate_of(world, target)
        if candidate is None:
            self.forget(key)
            return GateReport()
        if is_cleared(world, candidate.hash):
            self._runs.forget(key)
            report = await self._watch_step(key, world, candidate, now=now)
            load = await self._judge_load(world, candidate)
            waits = after(load) or report.again_seconds
            return replace(report, facts=replace(report.facts, load=load), again_seconds=waits)
        return await self._judge(key, world, candidate)

    async def _judge_load(self, world: World, candidate: Revision) -> Verdict:
        """Of all pods that are ready by now, not only of those that were when it was cleared."""
        if not world.spec.rollout.gate.load:
            return NOT_ASKED
        pods = ready_pods(world, candidate.hash)
        if not pods:
            return NOT_READY
        return judge_load(candidate, await self._engines.loaded(pods, world.spec.routing.port))

    # Load and quality: before the candidate gets any request ----------------------------------------
    async def _judge(self, key: Key, world: World, candidate: Revision) -> GateReport:
        gate, load = world.spec.rollout.gate, await self._judge_load(world, candidate)
        if gate.quality is None:
            return GateReport(facts=GateFacts(load=load), again_seconds=after(load))
        probes = await self._read_probes(world, gate.quality)
        if isinstance(probes, Verdict):
            facts = GateFacts(load=load, quality=probes, answers_recorded=False)
            return GateReport(facts=facts, again_seconds=PROBES_AGAIN_SECONDS)
        reference = self._find_reference(key, world, probes)
        report = GateReport(facts=GateFacts(load=load, quality=AFTER_LOAD))
        if isinstance(reference, GateReport):
            return replace(reference, facts=replace(reference.facts, load=load))
        if load.state != "Passed" or not ready_pods(world, candidate.hash):
            return replace(report, again_seconds=after(load))
        run = self._run(key, world, candidate.hash, probes)
        quality = self._judge_run(run, probes, reference, gate.quality)
        waits = PROBES_AGAIN_SECONDS if quality.state == "Pending" else None
        return GateReport(facts=GateFacts(load=load, quality=quality), again_seconds=waits)

    async def _read_probes(self, world: World, gate: QualityGate) -> Probes | Verdict:
        name = gate.config_map_ref.name
        body = await self._kube.read(CONFIG_MAPS, world.owner.namespace, name)
        if body is None:
            message = f"ConfigMap {name} of spec.rollout.gate.quality does not exist"
            return Verdict(state="Pending", reason="ProbesMissing", message=message)
        try:
            return parse_probes(name, body.get("data") or {})
        except InvalidSpec as error:
            return Verdict(state="Pending", reason="ProbesInvalid", message=str(error))

    def _find_reference(self, key: Key, world: World, probes: Probes) -> tuple[str, ...] | GateReport | None:
        """The last known good's answers; None where nobody can give them; a report while they are asked."""
        serving = serving_of(world)
        if serving is None or not needs_reference(probes):
            return None
        stored = world.revisions.get(serving)
        known = recall_answers(probes, stored.learned.answers) if stored else None
        if known is not None:
            return known
        if not ready_pods(world, serving) or self._door(world, serving).locked:
            return None
        run = self._run(key, world, serving, probes)
        if run.answers is not None:
            recorded = record_answers(probes, run.answers)
            if stored is None:
                # Somebody deleted what would hold them: they are good for as long as we remember them.
                return recall_answers(probes, recorded)
            facts = GateFacts(quality=AFTER_LOAD, answers_recorded=True)
            return GateReport(facts=facts, answers={serving: recorded}, again_seconds=AGAIN_SECONDS)
        words = run.trouble or f"{run.answered} of {run.total} probes were answered"
        message = f"revision {serving} is asked for answers to compare with: {words}"
        quality = Verdict(state="Pending", reason="RecordingAnswers", message=message)
        facts = GateFacts(quality=quality, answers_recorded=False)
        return GateReport(facts=facts, again_seconds=PROBES_AGAIN_SECONDS)

    def _run(self, key: Key, world: World, revision: str, probes: Probes) -> Run:
        subject = (world.owner.uid, revision, digest_probes(probes))
        run = self._runs.find(key, subject)
        if run is not None:
            return run
        pod = ready_pods(world, revision)[0]
        return self._runs.start(key, subject, probes, pod, self._door(world, revision))

    def _door(self, world: World, revision: str) -> Door:
        stored = world.revisions.get(revision)
        template = stored.revision.template if stored else world.deployments[revision].template
        return door_of(template, world.spec.routing.port)

    def _judge_run(
        self, run: Run, probes: Probes, reference: tuple[str, ...] | None, gate: QualityGate
    ) -> Verdict:
        if run.answers is not None:
            return judge_quality(probes, run.answers, reference, min_match_percent=gate.min_match_percent)
        words = run.trouble or f"{run.answered} of {run.total} probes were answered"
        return Verdict(state="Pending", reason="AskingProbes", message=words)

    # SLO: while the candidate has a share -----------------------------------------------------------
    async def _watch_step(self, key: Key, world: World, candidate: Revision, *, now: float) -> GateReport:
        gate, step = world.spec.rollout.gate.slo, canary_step(world, candidate.hash)
        serving = serving_of(world)
        if gate is None or step is None or serving is None:
            self._windows.pop(key, None)
            return GateReport()
        policy = world.spec.autoscaling
        slo = policy.slo if policy is not None else ServiceLevelObjective()
        pods = (*ready_pods(world, candidate.hash), *ready_pods(world, serving))
        readings = await self._engines.attained(pods, world.spec.routing.port, slo)
        subject = (world.owner.uid, candidate.hash, step)
        before = self._windows.get(key)
        window = (
            look_again(before[1], readings)
            if before is not None and before[0] == subject
            else open_window(now, readings)
        )
        self._windows[key] = (subject, window)
        verdict = judge_attainment(window.of(candidate.hash), window.of(serving), gate, slo)
        return GateReport(facts=GateFacts(slo=verdict, slo_since=window.since), again_seconds=SAMPLE_SECONDS)


def after(load: Verdict) -> float | None:
    """A pod that becomes ready brings an event; one that is silent brings none."""
    return AGAIN_SECONDS if load.state == "Pending" and load is not NOT_READY else None
