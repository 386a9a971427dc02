"""Pods of the simulated service: created, loading, ready, draining, gone.

A pod costs from its creation until it is gone, as an accelerator does. Going down takes those first that
are not ready, then the policy's victims, then the youngest, as a ReplicaSet does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from octavo_operator.simulation.fleet_state import (
    ABORTED,
    NOBODY,
    Ints,
    Records,
    new_replicas,
)
from octavo_operator.simulation.observing import PodSight, PodState, Snapshot

COLD_START_JITTER = 0.08
"""Standard deviation of a cold start, relative."""
RESTART_RATIO = 0.5
"""Of a cold start: what an engine's restart in its pod takes, with the weights on disk."""


@dataclass(slots=True, kw_only=True)
class Pod:
    """One pod; `index` is its row of the arrays, which a later pod may take over."""

    name: str
    index: int
    created: float
    ready_at: float
    state: PodState = "starting"
    deadline: float = 0.0
    """When a draining pod is killed."""
    last: Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long pods take to come and may take to go."""

    cold_start_seconds: float
    drain_seconds: float
    drain_accept_seconds: float = 10.0


class Pods:
    """All pods of one run, and the time that they cost."""

    def __init__(self, *, lifetimes: Lifetimes, most: int, random: np.random.Generator) -> None:
        self.replicas = new_replicas(most)
        self.live: list[Pod] = []
        self.num_aborted = 0
        self.num_lost = 0
        self._free = list(range(most - 1, -1, -1))
        self._lifetimes = lifetimes
        self._random = random
        self._made = 0
        self._spans: list[tuple[float, float]] = []

    # Coming and going ---------------------------------------------------------------------------

    def scale_to(self, replicas: int, now: float, victims: Sequence[str] = ()) -> None:
        """Create or terminate pods until so many are meant to stay."""
        staying = [pod for pod in self.live if pod.state != "terminating"]
        for _ in range(replicas - len(staying)):
            if not self._free:
                return  # as a quota would: what drains still holds its place
            self._create(now)
        for pod in self._order_of_going(staying, victims)[: max(0, len(staying) - replicas)]:
            self._terminate(pod, now)

    def make_ready(self, replicas: int) -> None:
        """The fleet that a run begins with."""
        for _ in range(replicas):
            self._create(0.0)
            self.live[-1].ready_at = 0.0

    def _create(self, now: float) -> None:
        factor = float(np.exp(self._random.normal(0, COLD_START_JITTER)))
        index = self._free.pop()
        self._clear(index, now)
        ready_at = now + self._lifetimes.cold_start_seconds * factor
        self.live.append(Pod(name=f"pod-{self._made}", index=index, created=now, ready_at=ready_at))
        self._made += 1

    def _clear(self, index: int, now: float) -> None:
        self.replicas[index : index + 1] = new_replicas(1)
        self.replicas["clock"][index] = now

    @staticmethod
    def _order_of_going(staying: Sequence[Pod], victims: Sequence[str]) -> list[Pod]:
        rank = {name: place for place, name in enumerate(victims)}
        return sorted(
            staying, key=lambda pod: (pod.state == "ready", rank.get(pod.name, len(rank)), -pod.ready_at)
        )

    def _terminate(self, pod: Pod, now: float) -> None:
        if pod.state == "starting":
            self._remove(pod, now)
            return
        pod.state = "terminating"
        pod.deadline = now + self._lifetimes.drain_accept_seconds + self._lifetimes.drain_seconds

    def _remove(self, pod: Pod, now: float) -> None:
        self.live.remove(pod)
        self._free.append(pod.index)
        self._spans.append((pod.created, now))

    # Time ---------------------------------------------------------------------------------------

    def pass_time(self, now: float, requests: Records) -> None:
        """Let pods become ready, and end those that have drained or used up their drain budget."""
        for pod in tuple(self.live):
            if pod.state == "starting" and pod.ready_at <= now:
                pod.state = "ready"
                self.replicas["clock"][pod.index] = now
            elif pod.state == "terminating" and (self._is_empty(pod) or pod.deadline <= now):
                self.num_aborted += self._drop_requests(pod, requests, now)
                self._remove(pod, now)

    def next_change(self, now: float) -> float:
        """When the next pod becomes ready or has to go."""
        times = [pod.ready_at for pod in self.live if pod.state == "starting"]
        times += [pod.deadline for pod in self.live if pod.state == "terminating"]
        return min((time for time in times if time > now), default=float("inf"))

    def restart_oldest(self, now: float, requests: Records) -> None:
        """The engine of the oldest ready pod dies: requests lost, counters anew, ready again later."""
        ready = [pod for pod in self.live if pod.state == "ready"]
        if not ready:
            return
        pod = min(ready, key=lambda pod: pod.created)
        self.num_lost += self._drop_requests(pod, requests, now)
        self._clear(pod.index, now)
        pod.state = "starting"
        pod.last = None
        pod.ready_at = now + RESTART_RATIO * self._lifetimes.cold_start_seconds

    def _is_empty(self, pod: Pod) -> bool:
        replica = self.replicas[pod.index]
        return bool(replica["num_running"] == 0 and replica["num_waiting"] == 0)

    def _drop_requests(self, pod: Pod, requests: Records, now: float) -> int:
        """End what the pod still has; how many."""
        held = list(self._requests_of(pod, requests))
        requests["state"][held] = ABORTED
        requests["end"][held] = now
        return len(held)

    def _requests_of(self, pod: Pod, requests: Records) -> Iterator[int]:
        replica = self.replicas[pod.index]
        yield from replica["running"][: replica["num_running"]].tolist()
        request = int(replica["head"])
        while request != NOBODY:
            yield request
            request = int(requests["follower"][request])

    # Reading ------------------------------------------------------------------------------------

    def indices(self, *states: PodState) -> Ints:
        """Rows of the pods in one of these states."""
        return np.array([pod.index for pod in self.live if pod.state in states], dtype=np.int64)

    def read(self, pod: Pod, now: float) -> Snapshot:
        """What the pod's engine would answer to a scrape."""
        replica = self.replicas[pod.index]
        return Snapshot(
            at=now,
            running=int(replica["num_running"]),
            waiting=int(replica["num_waiting"]),
            used_blocks=int(replica["used_blocks"]),
            counters=replica["counters"].copy(),
            uncached_counts=replica["uncached_counts"].copy(),
            output_counts=replica["output_counts"].copy(),
            ttft_counts=replica["ttft_counts"].copy(),
            tpot_counts=replica["tpot_counts"].copy(),
        )

    def sights(self) -> tuple[PodSight, ...]:
        """All pods, as a policy sees them."""
        return tuple(
            PodSight(
                name=pod.name,
                state=pod.state,
                created=pod.created,
                ready_since=pod.ready_at if pod.state != "starting" else None,
                snapshot=pod.last,
            )
            for pod in self.live
        )

    def replica_seconds(self, start: float, end: float) -> float:
        """Time that pods cost within a span."""
        spans = [*self._spans, *((pod.created, end) for pod in self.live)]
        return sum(max(0.0, min(gone, end) - max(created, start)) for created, gone in spans)
