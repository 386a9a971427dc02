"""The values of a rollout: what it is decided from, and what is decided.

Terms: the *serving* revision is the last known good one, which the main Service belongs to; the
*candidate* is the one that spec asks for, if it is another. *Cleared* is a candidate whose load and quality
gates have passed: before that it answers on its own Service only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from octavo_operator.desired.rollout_record import EMPTY_RECORD, FailedRollout, RolloutRecord

Strategy = Literal["Auto", "Surge", "InPlace", "Canary"]
SETTLE_SECONDS: Final = 5
"""After a revision lost its traffic, before its pods may go: endpoints and routes must have moved."""
NO_ROOM_SECONDS: Final = 60
"""How long a pod must have found no node before `Auto` exchanges one for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStep:
    """One share of the requests, held for a while."""

    weight: int
    """Percent."""
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPolicy:
    """What spec says of rollouts."""

    strategy: Strategy = "Auto"
    steps: tuple[CanaryStep, ...] = ()
    deadline_seconds: int = 1800
    routed: bool = False
    """An HTTPRoute divides the requests exactly; otherwise the numbers of pods do."""
    terms: str = ""
    """Of the words that a failure depends on: with other words it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one gate says."""

    state: Literal["Pending", "Passed", "Failed", "Inconclusive"]
    reason: str
    message: str


NOT_ASKED: Final = Verdict(state="Passed", reason="NotAsked", message="")
"""Of a gate that spec does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """What the gates say of the candidate now."""

    load: Verdict = NOT_ASKED
    quality: Verdict = NOT_ASKED
    slo: Verdict = NOT_ASKED
    """Of the step that is under way."""
    slo_since: float | None = None
    """Since when the SLO gate counts; a restarted operator begins to count anew."""
    answers_recorded: bool = True
    """Whether what the quality gate compares with is safe, should the serving revision be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the candidate cannot become ready, whatever is waited for."""

    reason: str
    message: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The pods of one revision."""

    wanted: int = 0
    ready: int = 0
    """Pods that answer and that nobody has told to end."""
    pods: int = 0
    """All that hold a place, those that are ending included."""
    ending: int = 0
    deployed: bool = True
    """Its Deployment is there."""
    settled: bool = True
    """Its Deployment's controller knows how many are wanted: those that are ready stay."""

    @property
    def staying(self) -> int:
        """Pods that nobody has told to end."""
        return self.pods - self.ending

    @property
    def lasting(self) -> int:
        """Ready pods that can be relied on; 0 while some may yet end for an earlier number."""
        return self.ready if self.settled else 0


NO_FLEET: Final = Fleet(deployed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutView:
    """What the decision is made from."""

    now: float = 0.0
    target: str | None
    """Revision that spec asks for; None while its words are not resolved or not feasible."""
    selected: str | None
    """Revision that the main Service belongs to."""
    shared: bool = False
    """The main Service selects the pods of all revisions."""
    proven: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    """Revisions whose templates are kept: their Deployments can be made again."""
    fleets: Mapping[str, Fleet]
    records: Mapping[str, RolloutRecord] = field(default_factory=dict)
    replicas: int
    """How many there should be."""
    policy: RolloutPolicy = RolloutPolicy()
    gates: GateFacts = GateFacts()
    trouble: Trouble | None = None
    no_room_since: float | None = None
    """Since when a pod of the candidate finds no node."""

    def fleet(self, revision: str | None) -> Fleet:
        return self.fleets.get(revision or "", NO_FLEET)

    def record(self, revision: str | None) -> RolloutRecord:
        return self.records.get(revision or "", EMPTY_RECORD)

    @property
    def deployed(self) -> frozenset[str]:
        return frozenset(one for one, fleet in self.fleets.items() if fleet.deployed)

    def has_traffic(self, revision: str) -> bool:
        """Whether requests may still come to it, as far as anybody remembers or can see."""
        return self.record(revision).weight > 0 or (self.shared and self.fleet(revision).ready > 0)

    def settles_at(self, revision: str) -> float:
        """When a revision that lost its traffic may go."""
        lost_at = self.record(revision).weight_at
        return self.now if lost_at is None else lost_at + SETTLE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDecision:
    """What should exist after this pass."""

    serving: str | None
    """Revision that the main Service is to belong to."""
    target: str | None
    shared: bool = False
    """The main Service is to select the pods of all revisions, each with its share by number."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Percent of the requests by revision; they sum to 100, or there are none."""
    services: tuple[str, ...] = ()
    """Revisions that need a Service of their own."""
    replicas: Mapping[str, int]
    """Replicas of each Deployment to be applied."""
    remove: tuple[str, ...]
    """Revisions whose Deployments are to be deleted."""
    records: Mapping[str, RolloutRecord] = field(default_factory=dict)
    """To be remembered, by revision; one that is not in it stays as it is."""
    newly_proven: bool = False
    """The target became fit to serve in this pass."""
    promoted: bool = False
    """The target serves and was proven."""
    failed: FailedRollout | None = None
    """Why the target does not serve and will not; None while it may still come."""
    strategy: str = ""
    """How the candidate takes over; empty when there is none."""
    step: int = 0
    """Of the canary's steps, from 1; 0 outside of them."""
    gate: Verdict = NOT_ASKED
    evidence: str = ""
    """What its gates saw when the target was promoted."""
    reason: str
    message: str
    again_seconds: float | None = None
    """When time alone may change the decision."""
