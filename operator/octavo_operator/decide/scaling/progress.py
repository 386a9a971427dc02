"""What one engine did between two scrapes, from its counters.

A counter that went back belongs to an engine that was started anew: what it did in between is unknown,
as it is for a pod that is read for the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import sub

from octavo.step_learning import StepSample
from octavo_operator.decide.scaling.readings import EngineReading, Histogram

HISTOGRAMS = ("prompts", "outputs", "ttft", "tpot")
COUNTERS = (
    "arrived",
    "admitted",
    "finished",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "recomputed_tokens",
    "preemptions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Differences of counters over so many seconds."""

    seconds: float
    arrived: float
    admitted: float
    finished: float
    prompt_tokens: float
    cached_tokens: float
    generated_tokens: float
    recomputed_tokens: float
    preemptions: float
    steps: StepSample
    prompts: Histogram
    outputs: Histogram
    ttft: Histogram
    tpot: Histogram


def progress_between(before: EngineReading, after: EngineReading) -> Progress | None:
    """None where the engine was started anew in between, or the later reading is no later."""
    seconds = after.at - before.at
    if seconds <= 0:
        return None
    counted = {name: getattr(after, name) - getattr(before, name) for name in COUNTERS}
    steps = StepSample(
        steps=after.steps.steps - before.steps.steps,
        seconds=after.steps.seconds - before.steps.seconds,
        prefill_tokens=after.steps.prefill_tokens - before.steps.prefill_tokens,
        context_tokens=after.steps.context_tokens - before.steps.context_tokens,
        sequences=after.steps.sequences - before.steps.sequences,
    )
    prompts, outputs, ttft, tpot = (
        _difference(getattr(after, name), getattr(before, name)) for name in HISTOGRAMS
    )
    if prompts is None or outputs is None or ttft is None or tpot is None:
        return None
    if min(*counted.values(), steps.steps, steps.seconds) < 0:
        return None
    return Progress(
        seconds=seconds, steps=steps, prompts=prompts, outputs=outputs, ttft=ttft, tpot=tpot, **counted
    )


def _difference(after: Histogram, before: Histogram) -> Histogram | None:
    if after.bounds != before.bounds or after.total < before.total:
        return None
    counts = tuple(map(sub, after.counts, before.counts))
    return Histogram(bounds=after.bounds, counts=counts)


def num_within(histogram: Histogram, limit: float) -> float:
    """Values at or below the largest bound that is at most the limit.

    >>> num_within(Histogram(bounds=(1.0, 2.0, 3.0), counts=(5, 8, 9, 10)), 2.5)
    8
    """
    index = bisect_right(histogram.bounds, limit) - 1
    return histogram.counts[index] if index >= 0 else 0.0


def whole_middles(histogram: Histogram) -> list[tuple[float, float]]:
    """The same for whole numbers: the bucket above 4 and up to 6 holds 5 and 6.

    >>> whole_middles(Histogram(bounds=(1.0, 2.0, 4.0), counts=(4, 10, 11, 11)))
    [(1.0, 4.0), (2.0, 6), (3.5, 1)]
    """
    return [(size + 0.5, count) for size, count in middles(histogram) if count > 0]


def middles(histogram: Histogram) -> list[tuple[float, float]]:
    """One size for each bucket, with its count: the middle, or half beyond the last bound.

    >>> middles(Histogram(bounds=(100.0, 300.0), counts=(4, 10, 11)))
    [(50.0, 4.0), (200.0, 6), (450.0, 1)]
    """
    lows = (0.0, *histogram.bounds)
    highs = (*histogram.bounds, 2 * histogram.bounds[-1] if histogram.bounds else 0.0)
    earlier = (0.0, *histogram.counts[:-1])
    return [
        ((low + high) / 2, count - before)
        for low, high, count, before in zip(lows, highs, histogram.counts, earlier, strict=True)
    ]
