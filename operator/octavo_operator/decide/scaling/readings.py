"""What one pod's engine said at one scrape, or why it is not known.

Missing is never zero: a number that is not there, is not finite or is negative makes the pod unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.step_model import StepCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A Prometheus histogram: counts of values at or below each bound since the engine started."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending, without the infinite one."""
    counts: tuple[float, ...]
    """Cumulative, one for each bound, and last the count of all."""

    def __post_init__(self) -> None:
        assert len(self.counts) == len(self.bounds) + 1, (
            f"{len(self.counts)} counts, {len(self.bounds)} bounds"
        )

    @property
    def total(self) -> float:
        return self.counts[-1]


NOTHING_COUNTED: Final = Histogram(bounds=(), counts=(0.0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSums:
    """Counters over all steps since the engine started."""

    steps: float
    seconds: float
    prefill_tokens: float
    """Σp"""
    context_tokens: float
    """ΣC"""
    sequences: float
    """ΣB"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One pod's numbers at one scrape. Counters count since the engine started."""

    at: float
    """When it was scraped: seconds of the operator's clock."""
    # gauges
    running: float
    waiting: float
    kv_tokens_referenced: float
    """Tokens of cache that running sequences refer to, shared ones once, cached idle ones not."""
    kv_tokens_total: float
    max_sequences: float
    max_step_tokens: float
    """M: the most tokens that one step computes."""
    draining: bool = False
    prior: StepCosts | None = None
    """From what a CPU engine measured of its machine at start; None where a table lists the device."""
    # counters
    arrived: float
    admitted: float
    finished: float
    """For whatever reason."""
    prompt_tokens: float
    """Of admitted requests, cached ones included."""
    cached_tokens: float
    generated_tokens: float
    recomputed_tokens: float
    preemptions: float
    # sums and distributions
    steps: StepSums
    prompts: Histogram
    """Uncached prompt tokens of admitted requests."""
    ttft: Histogram
    tpot: Histogram
    outputs: Histogram = NOTHING_COUNTED
    """Generated tokens of requests that ended by themselves; engines of earlier versions do not tell."""

    @property
    def sequences(self) -> float:
        """In flight: that run or wait."""
        return self.running + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A pod that could not be read in this round, and why."""

    reason: str


Reading = EngineReading | Unknown
