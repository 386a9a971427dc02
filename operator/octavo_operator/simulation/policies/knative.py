"""Knative's pod autoscaler (KPA) on concurrency.

Source: Knative documentation, "Supported autoscaler types" and "Configuring concurrency": a stable window of
60 s and a panic window of a tenth of it; panic at twice the capacity there is, in which nothing is given up;
at most ten times up and half down at once; a decision every two seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from octavo_operator.simulation.observing import Observation, Wish
from octavo_operator.simulation.policies.horizontal import in_flight

STABLE_SECONDS: Final = 60.0
PANIC_SECONDS: Final = 6.0
PANIC_RATIO: Final = 2.0
MOST_UP: Final = 10.0
MOST_DOWN: Final = 2.0


@dataclass(slots=True, kw_only=True)
class Knative:
    """The KPA with a target of requests in flight for each pod, utilization included."""

    target: float
    interval_seconds: float = 2.0
    seen: list[tuple[float, float]] = field(default_factory=list)
    """(time, requests in flight of all pods)."""
    panic_until: float = -1.0
    panic_replicas: int = 0

    @property
    def name(self) -> str:
        return f"KPA {self.target:g}"

    def decide(self, observation: Observation) -> Wish:
        """The number for the mean of the stable window, or the highest of a panic."""
        now, ready = observation.now, max(1, len(observation.ready))
        heard = observation.heard
        if not heard:
            return Wish(replicas=observation.replicas, message="no metric")
        self.seen = [(at, load) for at, load in self.seen if at > now - STABLE_SECONDS]
        self.seen.append((now, sum(in_flight(snapshot) for snapshot in heard)))
        stable = self._bounded(self._mean(now, STABLE_SECONDS), ready)
        panic = self._bounded(self._mean(now, PANIC_SECONDS), ready)
        if panic >= PANIC_RATIO * ready:
            self.panic_until = now + STABLE_SECONDS
        if now < self.panic_until:
            self.panic_replicas = max(self.panic_replicas, panic, stable)
            return Wish(replicas=self.panic_replicas, message="panic")
        self.panic_replicas = 0
        return Wish(replicas=stable, message="stable")

    def _mean(self, now: float, seconds: float) -> float:
        loads = [load for at, load in self.seen if at > now - seconds]
        return sum(loads) / len(loads)

    def _bounded(self, load: float, ready: int) -> int:
        most, least = math.ceil(MOST_UP * ready), math.floor(ready / MOST_DOWN)
        return max(1, min(most, max(least, math.ceil(load / self.target))))
