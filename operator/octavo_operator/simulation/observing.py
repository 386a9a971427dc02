"""What a policy is shown, and what it answers: the one interface of the planner and of every baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from octavo_operator.simulation.fleet_state import Floats, Ints

PodState = Literal["starting", "ready", "terminating"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One engine's numbers at one scrape."""

    at: float
    running: int
    waiting: int
    used_blocks: int
    counters: Floats
    uncached_counts: Ints
    output_counts: Ints
    ttft_counts: Ints
    tpot_counts: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSight:
    """One pod as the API server and the last scrape tell it."""

    name: str
    state: PodState
    created: float
    ready_since: float | None
    snapshot: Snapshot | None
    """Of the last scrape; None if it did not answer then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known at a decision."""

    now: float
    replicas: int
    """How many were asked for last."""
    pods: tuple[PodSight, ...]

    @property
    def ready(self) -> tuple[PodSight, ...]:
        """Pods that get requests."""
        return tuple(pod for pod in self.pods if pod.state == "ready")

    @property
    def heard(self) -> tuple[Snapshot, ...]:
        """What ready pods answered."""
        return tuple(pod.snapshot for pod in self.ready if pod.snapshot is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How many replicas, which of them go first, and why."""

    replicas: int
    victims: tuple[str, ...] = ()
    message: str = ""


class Policy(Protocol):
    """Chooses the number of replicas every so many seconds; keeps its own memory."""

    @property
    def name(self) -> str: ...

    @property
    def interval_seconds(self) -> float: ...

    def decide(self, observation: Observation) -> Wish:
        """The number from now on."""
        ...
