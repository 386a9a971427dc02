"""The HorizontalPodAutoscaler, and KEDA through it, on four signals.

Source: Kubernetes documentation, "Horizontal Pod Autoscaling", autoscaling/v2 with its default behaviour:
a sync every 15 s, a tolerance of 10 %, up by at most 100 % or four pods in 15 s, down to the most that was
wanted in 300 s. KEDA hands the sum of a metric to an HPA as an external metric of type AverageValue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from octavo_operator.simulation.observing import Observation, Snapshot, Wish

SYNC_SECONDS: Final = 15.0
TOLERANCE: Final = 0.1
STABILIZATION_SECONDS: Final = 300.0

Signal = Callable[[Snapshot], float]


def waiting(snapshot: Snapshot) -> float:
    """Requests in the queue."""
    return float(snapshot.waiting)


def in_flight(snapshot: Snapshot) -> float:
    """Requests that run or wait."""
    return float(snapshot.running + snapshot.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Share of the KV cache that sequences hold."""

    num_blocks: int

    def __call__(self, snapshot: Snapshot) -> float:
        return snapshot.used_blocks / self.num_blocks


@dataclass(slots=True, kw_only=True)
class Horizontal:
    """One HPA with one metric."""

    name: str
    signal: Signal
    target: float
    kind: Literal["Pods", "External"]
    """Pods: the mean over ready pods, others filled in. External: a sum, over the replicas there are."""
    interval_seconds: float = SYNC_SECONDS
    recommended: list[tuple[float, int]] = field(default_factory=list)
    """(time, replicas), oldest first."""

    def decide(self, observation: Observation) -> Wish:
        """What the HPA would write into `/scale`; where there is no metric, nothing."""
        values = [self.signal(snapshot) for snapshot in observation.heard]
        if not values:
            return Wish(replicas=observation.replicas, message="no metric")
        if self.kind == "Pods":
            wanted = self._by_mean(observation, values)
        else:
            wanted = self._by_sum(observation, sum(values))
        return Wish(replicas=self._stabilized(observation, wanted), message=f"{self.name}: {wanted}")

    def _by_sum(self, observation: Observation, total: float) -> int:
        if abs(total / (self.target * observation.replicas) - 1) <= TOLERANCE:
            return observation.replicas
        return math.ceil(total / self.target)

    def _by_mean(self, observation: Observation, values: list[float]) -> int:
        """Pods without a value count as idle against a rise, and as on target against a fall."""
        ratio = sum(values) / len(values) / self.target
        if abs(ratio - 1) <= TOLERANCE:
            return observation.replicas
        unread = max(0, observation.replicas - len(values))
        filled = [*values, *([0.0 if ratio > 1 else self.target] * unread)]
        whole = sum(filled) / len(filled) / self.target
        if abs(whole - 1) <= TOLERANCE or (whole > 1) != (ratio > 1):
            return observation.replicas
        return math.ceil(whole * len(filled))

    def _stabilized(self, observation: Observation, wanted: int) -> int:
        now, held = observation.now, observation.replicas
        past = self.recommended or [(now, held)]  # a new HPA begins with what there is
        self.recommended = [
            *((at, count) for at, count in past if at > now - STABILIZATION_SECONDS),
            (now, wanted),
        ]
        if wanted > held:
            return min(wanted, max(2 * held, held + 4))
        return max(1, min(held, max(count for _, count in self.recommended)))


def keda_in_flight(target: float) -> Horizontal:
    """KEDA on the sum of running and waiting requests: the honest baseline, once its target is tuned."""
    return Horizontal(name=f"KEDA in-flight {target:g}", signal=in_flight, target=target, kind="External")


def keda_queue(target: float) -> Horizontal:
    """KEDA on the sum of waiting requests."""
    return Horizontal(name=f"KEDA queue {target:g}", signal=waiting, target=target, kind="External")


def hpa_queue(target: float) -> Horizontal:
    """HPA on the mean of waiting requests."""
    return Horizontal(name=f"HPA queue {target:g}", signal=waiting, target=target, kind="Pods")


def hpa_cache(percent: float, num_blocks: int) -> Horizontal:
    """HPA on the mean use of the KV cache."""
    signal = CacheUse(num_blocks=num_blocks)
    return Horizontal(name=f"HPA KV {percent:g} %", signal=signal, target=percent / 100, kind="Pods")
