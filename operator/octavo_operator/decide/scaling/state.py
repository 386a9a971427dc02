"""What the planner remembers of one service from round to round.

The durable part is kept in a ConfigMap, so that a restarted operator decides as if it had never been away;
the live part (last counters of each pod, the last half hour) is found again within a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from octavo.replica_load import MEMORY_SHARE, Objective, ReplicaLimits
from octavo.step_learning import LearnedCosts
from octavo_operator.decide.scaling.decision import PastDecision
from octavo_operator.decide.scaling.demand import DemandMemory
from octavo_operator.decide.scaling.forecast import UsualLoad
from octavo_operator.decide.scaling.pressure import Pressure
from octavo_operator.decide.scaling.readings import EngineReading
from octavo_operator.decide.scaling.traffic import TrafficMemory

SHORT_GAP_SECONDS: Final = 30.0
LONGEST_GAP_SECONDS: Final = 120.0
MAX_KINDS: Final = 8
"""Kinds of replica whose costs are remembered."""
MAX_RECENT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests that came in so many seconds before a moment."""

    at: float
    seconds: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMemory:
    """Lost with the process."""

    last: Mapping[str, EngineReading] = field(default_factory=dict)
    """By pod, what it said last."""
    known: frozenset[str] = frozenset()
    """Pods that have been ready."""
    arrivals: tuple[Arrivals, ...] = ()
    """Of the rounds of the last minute."""
    pressure: tuple[Pressure, ...] = ()
    objective: Objective | None = None
    """That the pressure was measured for."""
    counted_since: float | None = None
    """When rates began to be known."""
    round_at: float | None = None
    blind_rounds: int = 0
    blind_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerState:
    """Memory of one service."""

    live: LiveMemory = field(default_factory=LiveMemory)
    seen_at: float | None = None
    """The latest decision."""
    known_since: float | None = None
    """From when on what was wanted is known without a gap; None before the first reading."""
    wanted: tuple[tuple[float, int], ...] = ()
    """(time, replicas), oldest first, without those that a later and higher one outlives."""
    learned: Mapping[str, LearnedCosts] = field(default_factory=dict)
    """By kind of replica, the latest used last."""
    traffic: TrafficMemory = field(default_factory=TrafficMemory)
    usual: TrafficMemory = field(default_factory=TrafficMemory)
    """The same over hours."""
    loads: tuple[tuple[float, float], ...] = ()
    """(time, offered work in replicas) of the window, as `wanted`."""
    worth: float | None = None
    """Misses a second that one more replica has to save, for the budget of misses to be spent just so in
    usual traffic: the mean of about an hour; None until a bucket of demand is closed."""
    demand: DemandMemory = field(default_factory=DemandMemory)
    usual_load: UsualLoad = field(default_factory=UsualLoad)
    """Over some twenty minutes."""
    limits: ReplicaLimits | None = None
    step_tokens: float = 512.0
    memory_share: float = MEMORY_SHARE
    """η, which the brake lowers for a while."""
    cold_starts: tuple[float, ...] = ()
    decided: int | None = None
    """The latest number; None before the first."""
    replicas: int | None = None
    """How many there were to be at the latest round: somebody else may set it."""
    changed_at: float | None = None
    """When that last changed."""
    lowered_at: float | None = None
    braked_at: float | None = None
    """When a brake last added a replica."""
    relieved_at: float | None = None
    """When the brake last lowered η."""
    recent: tuple[PastDecision, ...] = ()
    """Newest first."""


Number = TypeVar("Number", bound=float)


def note_wanted(
    wanted: tuple[tuple[float, Number], ...], *, now: float, replicas: Number, window: float
) -> tuple[tuple[float, Number], ...]:
    """What the highest of the window can still be: later entries outlive earlier ones that are not higher.

    >>> note_wanted(((0.0, 5), (10.0, 3), (20.0, 2)), now=30.0, replicas=3, window=300.0)
    ((0.0, 5), (30.0, 3))
    """
    kept = [one for one in wanted if one[1] > replicas and one[0] >= now - window]
    return (*kept, (now, replicas))


def note_change(state: PlannerState, past: PastDecision, *, lowered: bool) -> PlannerState:
    return replace(
        state,
        lowered_at=past.at if lowered else state.lowered_at,
        recent=(past, *state.recent)[:MAX_RECENT],
    )


def resumed(state: PlannerState, *, now: float, replicas: int, window: float) -> PlannerState:
    """The memory as it may be used now, with so many replicas there.

    | time without decisions | what was wanted in it                                            |
    | a round or two         | no more than the memory says                                     |
    | longer                 | perhaps as many as there are: more would have been raised to     |
    | more than two minutes  | not known: the window of scale-down begins anew                  |
    """
    if state.live.round_at is None:
        state = replace(state, decided=None, replicas=None)
    gap = 0.0 if state.seen_at is None else now - state.seen_at
    if gap <= SHORT_GAP_SECONDS:
        return state
    if gap > LONGEST_GAP_SECONDS:
        return replace(state, known_since=None, wanted=(), loads=())
    return replace(state, wanted=note_wanted(state.wanted, now=now, replicas=replicas, window=window))
