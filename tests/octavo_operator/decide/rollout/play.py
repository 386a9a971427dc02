"""A cluster as far as a rollout sees it: pods that start, end and fail, a Service, and a clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from octavo_operator.decide.rollout import RolloutDecision, RolloutView, decide_rollout
from octavo_operator.decide.rollout.values import Fleet, GateFacts, RolloutPolicy, Trouble, Verdict
from octavo_operator.desired.rollout_record import RolloutRecord, parse_record, render_record

PASSED = Verdict(state="Passed", reason="GatePassed", message="seen")


@dataclass
class Pod:
    """One pod; `blocked` ones find no node."""

    revision: str
    ready: bool = False
    blocked: bool = False
    ending: bool = False


@dataclass
class Play:
    """What the API server holds, and what the world does with it."""

    policy: RolloutPolicy
    replicas: int = 1
    room: int = 1000
    """Pods that find a place."""
    target: str | None = "a"
    now: float = 1000.0
    selected: str | None = None
    shared: bool = False
    weights: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    proven: set[str] = field(default_factory=set)
    records: dict[str, str] = field(default_factory=dict)
    """As they are stored."""
    bad: set[str] = field(default_factory=set)
    """Revisions whose gates fail."""
    broken: set[str] = field(default_factory=set)
    """Revisions whose pods never become ready."""
    slo: Verdict = PASSED

    # What the operator sees -----------------------------------------------------------------------
    def view(self) -> RolloutView:
        known = {*self.wanted, *(pod.revision for pod in self.pods)}
        blocked = any(pod.blocked and pod.revision == self.target for pod in self.pods)
        return RolloutView(
            now=self.now,
            target=self.target,
            selected=self.selected,
            shared=self.shared,
            proven=frozenset(self.proven),
            stored=frozenset({*self.proven, *([self.target] if self.target else [])}),
            fleets={one: self.fleet(one) for one in sorted(known)},
            records={one: parse_record(text) for one, text in self.records.items()},
            replicas=self.replicas,
            policy=self.policy,
            gates=self.gates(),
            trouble=self.trouble(),
            no_room_since=self.blocked_since if blocked else None,
        )

    blocked_since: float = 0.0

    def fleet(self, revision: str) -> Fleet:
        mine = [pod for pod in self.pods if pod.revision == revision]
        return Fleet(
            wanted=self.wanted.get(revision, 0),
            ready=sum(pod.ready and not pod.ending for pod in mine),
            pods=len(mine),
            ending=sum(pod.ending for pod in mine),
            deployed=revision in self.wanted,
        )

    def gates(self) -> GateFacts:
        failed = Verdict(state="Failed", reason="QualityGateFailed", message="1 of 2 probes")
        return GateFacts(load=PASSED, quality=failed if self.target in self.bad else PASSED, slo=self.slo)

    def trouble(self) -> Trouble | None:
        seen = any(pod.revision == self.target and not pod.blocked for pod in self.pods)
        broken = self.target in self.broken and seen
        return Trouble(reason="FileMissing", message="x") if broken else None

    # What the operator does -----------------------------------------------------------------------
    def decide(self) -> RolloutDecision:
        return decide_rollout(self.view())

    def act(self, *, writes: int | None = None) -> RolloutDecision:
        """All that was decided, or only so many writes: the operator was killed in between."""
        decision = self.decide()
        for write in self.writes(decision)[:writes]:
            write()
        return decision

    def writes(self, decision: RolloutDecision) -> list[Any]:
        """In the order of the real pass: records, Service, Deployments, removals."""
        writes: list[Any] = []
        for one, record in decision.records.items():
            writes.append(lambda one=one, record=record: self.remember(one, record))
        if decision.newly_proven:
            writes.append(lambda: self.proven.add(decision.target or ""))
        writes.append(lambda: self.point(decision))
        for one, replicas in decision.replicas.items():
            writes.append(lambda one=one, replicas=replicas: self.scale(one, replicas))
        for one in decision.remove:
            writes.append(lambda one=one: self.delete(one))
        return writes

    def remember(self, revision: str, record: RolloutRecord) -> None:
        self.records[revision] = render_record(record)

    def point(self, decision: RolloutDecision) -> None:
        if decision.serving is not None:
            self.selected, self.shared = decision.serving, decision.shared
            self.weights = dict(decision.weights)

    def scale(self, revision: str, replicas: int) -> None:
        self.wanted[revision] = replicas
        mine = [pod for pod in self.pods if pod.revision == revision and not pod.ending]
        for pod in sorted(mine, key=lambda pod: pod.ready)[: max(0, len(mine) - replicas)]:
            pod.ending = True
        self.pods += [Pod(revision) for _ in range(replicas - len(mine))]
        self.place()

    def delete(self, revision: str) -> None:
        del self.wanted[revision]
        for pod in self.pods:
            pod.ending = pod.ending or pod.revision == revision

    # What the world does --------------------------------------------------------------------------
    def place(self) -> None:
        """The scheduler: those that came first have the room."""
        for index, pod in enumerate(self.pods):
            blocked = index >= self.room and not pod.ready
            if blocked and not pod.blocked:
                self.blocked_since = self.now
            pod.blocked = blocked

    def bury(self) -> None:
        """Pods that were ending are gone."""
        self.pods = [pod for pod in self.pods if not pod.ending]
        self.place()

    def start(self) -> None:
        for pod in self.pods:
            pod.ready = pod.ready or not (pod.blocked or pod.ending or pod.revision in self.broken)

    # What a client sees ---------------------------------------------------------------------------
    def answering(self) -> list[Pod]:
        """Ready pods that requests come to."""
        if self.policy.routed:
            reached = {one for one, weight in self.weights.items() if weight}
        else:
            reached = {pod.revision for pod in self.pods} if self.shared else {self.selected or ""}
        return [pod for pod in self.pods if pod.ready and not pod.ending and pod.revision in reached]

    def breathe(self) -> None:
        """Pods end and start."""
        self.bury()
        self.start()

    def round(self, *, seconds: float = 1.0) -> RolloutDecision:
        """A pass and what follows from it; time jumps only where nothing else is left to happen."""
        before = self.stored()
        decision = self.act()
        self.breathe()
        is_moving = self.stored() != before
        self.now += seconds if is_moving else max(seconds, decision.again_seconds or 0.0)
        self.still = not is_moving and decision.again_seconds is None
        return decision

    still: bool = False

    def stored(self) -> object:
        pods = [(pod.revision, pod.ready, pod.blocked) for pod in self.pods]
        return pods, dict(self.wanted), self.selected, self.shared, dict(self.weights), dict(self.records)

    def run(self, *, passes: int = 200) -> RolloutDecision:
        """Until nothing changes any more."""
        for _ in range(passes):
            decision = self.round()
            if self.still:
                return decision
        raise AssertionError(f"the rollout does not end: {self}")


def settled(policy: RolloutPolicy, replicas: int = 1, **changes: Any) -> Play:
    """Revision a serves."""
    play = replace(Play(policy=policy, replicas=replicas), **changes)
    play.run()
    return play
