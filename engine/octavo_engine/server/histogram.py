"""Histograms for the metrics page, with the bounds that readers of each name expect."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily

TTFT_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""vLLM's bounds for time to first token."""
ITL_BOUNDS: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""vLLM's bounds for the time between two tokens."""
REQUEST_BOUNDS: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""vLLM's bounds for whole requests and their time in the queue."""


def fine_bounds(low: float = 0.01, high: float = 40.0, ratio: float = 1.1) -> tuple[float, ...]:
    """Bounds a tenth apart, so that attainment of any objective between them can be read.

    >>> len(fine_bounds()), fine_bounds()[0], fine_bounds()[-1]
    (89, 0.01, 40.0)
    """
    bounds = [low]
    while bounds[-1] * ratio < high:
        bounds.append(bounds[-1] * ratio)
    return (*(float(f"{bound:.4g}") for bound in bounds), high)


class Histogram:
    """Counts per bucket, and the sum. One thread writes; a scrape in the same thread reads."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count one value, or the same value several times."""
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    def family(self, label: str, value: str) -> HistogramMetricFamily:
        """As the metrics page wants it: cumulative counts."""
        return histogram_family(
            self._name,
            self._documentation,
            {label: value},
            bounds=self._bounds,
            counts=self._counts,
            total=self._sum,
        )


def histogram_family(
    name: str,
    documentation: str,
    labels: Mapping[str, str],
    *,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> HistogramMetricFamily:
    """Counts per bucket, of which the last is unbounded, as the metrics page wants them: cumulative."""
    family = HistogramMetricFamily(name, documentation, labels=list(labels))
    ends = (*(str(float(bound)) for bound in bounds), "+Inf")
    family.add_metric(list(labels.values()), list(zip(ends, accumulate(counts), strict=True)), total)
    return family
