"""How long a new replica takes, from its pod's creation to Ready: the 90th percentile of those seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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


def note_starting(pods: Iterable[ScaledPod]) -> dict[str, float]:
    """Pods on their way, with the time of their creation."""
    return {pod.name: pod.created_at for pod in pods if pod.state in ("starting", "unschedulable", "failing")}


def measure_cold_starts(
    seen: tuple[float, ...], starting: Mapping[str, float], pods: Iterable[ScaledPod]
) -> tuple[float, ...]:
    """Only of pods that were seen on their way: one ready before may have lost and found it again."""
    new = [
        min(pod.ready_at - starting[pod.name], MOST_SECONDS)
        for pod in pods
        if pod.state == "ready" and pod.ready_at is not None and pod.name in starting
    ]
    return (*seen, *(max(0.0, seconds) for seconds in new))[-MAX_SEEN:]
