"""How long a new replica takes, from its pod's creation to Ready: the 90th percentile of those seen."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Final

from octavo_operator.decide.scaling.view import ScaledPod

FIRST_GUESS_SECONDS: Final = 180.0
"""Before one was seen."""
MAX_SEEN: Final = 20
COLD_START_QUANTILE: Final = 0.9
MOST_SECONDS: Final = 3600.0


def cold_start_seconds(seen: tuple[float, ...]) -> float:
    """
    >>> cold_start_seconds(()), cold_start_seconds((10, 20, 30, 40, 50, 60, 70, 80, 90, 100))
    (180.0, 90)
    """
    if not seen:
        return FIRST_GUESS_SECONDS
    return sorted(seen)[math.ceil(COLD_START_QUANTILE * len(seen)) - 1]


def note_ready(known: frozenset[str], pods: Iterable[ScaledPod]) -> frozenset[str]:
    """Pods that have been ready, of those that are still there."""
    return frozenset(pod.name for pod in pods if pod.state == "ready" or pod.name in known)


def measure_cold_starts(
    seen: tuple[float, ...], known: Container[str], pods: Iterable[ScaledPod]
) -> tuple[float, ...]:
    """Of pods that were not known to be ready: one that was may since have lost and found it again."""
    new = [
        min(max(0.0, pod.ready_at - pod.created_at), MOST_SECONDS)
        for pod in pods
        if pod.state == "ready" and pod.ready_at is not None and pod.name not in known
    ]
    return (*seen, *new)[-MAX_SEEN:]
