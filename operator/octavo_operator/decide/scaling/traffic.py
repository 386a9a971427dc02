"""The requests of one service, in tokens: means over about the last ten minutes.

Sums decay with time, so that a mean follows a change of the mix. A few requests of a usual size stand in
for those that have not come yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import add
from statistics import variance
from typing import Final

from octavo.replica_load import Traffic
from octavo.token_sizes import exponential_sizes, token_sizes
from octavo_operator.decide.scaling.progress import Progress, middles, whole_middles
from octavo_operator.decide.scaling.readings import EngineReading, Histogram

MEMORY_SECONDS: Final = 600.0
"""In which a sum falls to a third."""
USUAL_SECONDS: Final = 6 * 3600.0
"""The same for what is usual."""
USUAL_PROMPT_TOKENS: Final = 500.0
USUAL_OUTPUT_TOKENS: Final = 200.0
USUAL_SHARE: Final = 0.25
"""Of the longest sequence, where the usual sizes are too large for it."""
USUAL_REQUESTS: Final = 2.0
"""So many requests of the usual size are taken for granted."""
GRANTED: Final = 10.0
"""Comparisons of a replica that are taken for granted."""
ENOUGH_SIZES: Final = 5.0
"""Fewer give no distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficMemory:
    """Decaying sums over all pods."""

    admitted: float = 0.0
    finished: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    generated_tokens: float = 0.0
    context_tokens: float = 0.0
    decoded: float = 0.0
    """Sequences, once for each step they were in."""
    kv_tokens: float = 0.0
    running: float = 0.0
    """Sequences, once for each scrape."""
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    """Of the uncached prompt tokens, cumulative as in a histogram."""
    output_bounds: tuple[float, ...] = ()
    output_counts: tuple[float, ...] = ()
    """Of the generated tokens of requests that ended, likewise."""
    kv_spread: float = 0.0
    """Variance over mean of what replicas held at one time, once for each replica and scrape."""
    compared: float = 0.0
    """Replicas, once for each scrape."""


def remember_traffic(
    memory: TrafficMemory,
    done: Iterable[Progress],
    readings: Iterable[EngineReading],
    *,
    seconds: float,
    keep_seconds: float = MEMORY_SECONDS,
) -> TrafficMemory:
    """The sums after so many seconds in which the engines did this."""
    memory = _decayed(memory, math.exp(-seconds / keep_seconds))
    for progress in done:
        memory = _added(memory, progress)
    seen = list(readings)
    spread = _spread([reading.kv_tokens_referenced for reading in seen])
    return replace(
        memory,
        kv_tokens=memory.kv_tokens + sum(reading.kv_tokens_referenced for reading in seen),
        running=memory.running + sum(reading.running for reading in seen),
        kv_spread=memory.kv_spread + len(seen) * (spread or 0.0),
        compared=memory.compared + (0 if spread is None else len(seen)),
    )


def _spread(held: list[float]) -> float | None:
    """Variance over mean; None of one replica, or where nothing is held.

    >>> _spread([1000.0, 3000.0]), _spread([1000.0])
    (1000.0, None)
    """
    mean = sum(held) / len(held) if len(held) > 1 else 0.0
    return variance(held) / mean if mean > 0 else None


def _decayed(memory: TrafficMemory, share: float) -> TrafficMemory:
    return TrafficMemory(
        admitted=memory.admitted * share,
        finished=memory.finished * share,
        prompt_tokens=memory.prompt_tokens * share,
        cached_tokens=memory.cached_tokens * share,
        generated_tokens=memory.generated_tokens * share,
        context_tokens=memory.context_tokens * share,
        decoded=memory.decoded * share,
        kv_tokens=memory.kv_tokens * share,
        running=memory.running * share,
        bounds=memory.bounds,
        counts=tuple(count * share for count in memory.counts),
        output_bounds=memory.output_bounds,
        output_counts=tuple(count * share for count in memory.output_counts),
        kv_spread=memory.kv_spread * share,
        compared=memory.compared * share,
    )


def _added(memory: TrafficMemory, progress: Progress) -> TrafficMemory:
    outputs = progress.outputs
    return replace(
        memory,
        admitted=memory.admitted + progress.admitted,
        finished=memory.finished + progress.finished,
        prompt_tokens=memory.prompt_tokens + progress.prompt_tokens,
        cached_tokens=memory.cached_tokens + progress.cached_tokens,
        generated_tokens=memory.generated_tokens + progress.generated_tokens,
        context_tokens=memory.context_tokens + progress.steps.context_tokens,
        decoded=memory.decoded + progress.steps.sequences,
        bounds=_bounds(memory.bounds, progress.prompts),
        counts=_joined(memory.bounds, memory.counts, progress.prompts),
        output_bounds=_bounds(memory.output_bounds, outputs),
        output_counts=_joined(memory.output_bounds, memory.output_counts, outputs),
    )


def _bounds(bounds: tuple[float, ...], seen: Histogram) -> tuple[float, ...]:
    return bounds if seen.total == 0 else seen.bounds


def _joined(bounds: tuple[float, ...], counts: tuple[float, ...], seen: Histogram) -> tuple[float, ...]:
    """Of other bounds nothing is kept; where nothing was counted, all."""
    if seen.total == 0:
        return counts
    before = counts if bounds == seen.bounds else (0.0,) * len(seen.counts)
    return tuple(map(add, before, seen.counts))


def describe_traffic(memory: TrafficMemory, *, max_model_len: int, step_tokens: float) -> Traffic:
    """What capacity is computed for."""
    usual_prompt = min(USUAL_PROMPT_TOKENS, USUAL_SHARE * max_model_len)
    usual_output = min(USUAL_OUTPUT_TOKENS, USUAL_SHARE * max_model_len)
    admitted = memory.admitted + USUAL_REQUESTS
    # Sequences that run have generated half of their tokens on average: half of each counts as ended.
    ended = (memory.admitted + memory.finished) / 2 + USUAL_REQUESTS
    whole = (memory.prompt_tokens + USUAL_REQUESTS * usual_prompt) / admitted
    uncached = (memory.prompt_tokens - memory.cached_tokens + USUAL_REQUESTS * usual_prompt) / admitted
    output = (memory.generated_tokens + USUAL_REQUESTS * usual_output) / ended
    context = memory.context_tokens / memory.decoded if memory.decoded >= 1 else whole + output / 2
    kv = memory.kv_tokens / memory.running if memory.running >= 1 else whole + output / 2
    uncached, output = max(1.0, uncached), max(1.0, output)
    return Traffic(
        prompts=token_sizes(_prompts(memory, uncached, float(max_model_len))),
        outputs=token_sizes(_outputs(memory, output)),
        kv_spread=_kv_spread(memory, max(1.0, kv)),
        step_tokens=max(1.0, step_tokens),
        output_tokens=output,
        context_tokens=max(1.0, context),
        kv_tokens=max(1.0, kv),
    )


def _prompts(memory: TrafficMemory, mean: float, longest: float) -> list[tuple[float, float]]:
    """The distribution seen, stretched to the exact mean; before there is one, the widest usual one."""
    if not memory.counts or memory.counts[-1] < ENOUGH_SIZES:
        return exponential_sizes(mean)
    sizes = middles(Histogram(bounds=memory.bounds, counts=memory.counts))
    total = sum(size * weight for size, weight in sizes)
    if total <= 0:
        return exponential_sizes(mean)
    stretch = mean * memory.counts[-1] / total
    return [(min(size * stretch, longest), weight) for size, weight in sizes]


def _outputs(memory: TrafficMemory, mean: float) -> list[tuple[float, float]]:
    if not memory.output_counts or memory.output_counts[-1] < ENOUGH_SIZES:
        return exponential_sizes(mean)
    return whole_middles(Histogram(bounds=memory.output_bounds, counts=memory.output_counts))


def _kv_spread(memory: TrafficMemory, kv: float) -> float:
    """As if sequences of all sizes came at random, until replicas were compared often enough."""
    return (memory.kv_spread + GRANTED * 2 * kv) / (memory.compared + GRANTED)
