"""The sizes of prompts, as far as the wait for the first token depends on them.

A prompt of *i* uncached tokens is computed in `n = ceil(i / M)` steps of at most *M* tokens, so its seconds
are `b·i + n·step`; their mean and mean square follow from five moments of *i* and *n*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.errors import InvalidSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMoments:
    """Of the uncached tokens *i* of a request and the steps *n* they take."""

    tokens: float
    tokens_square: float
    steps: float
    steps_square: float
    tokens_times_steps: float
    quantile_tokens: float
    """The objective's share of prompts is not longer."""
    quantile_steps: float


def prompt_moments(
    sizes: Iterable[tuple[float, float]], *, step_tokens: float, quantile: float
) -> PromptMoments:
    """From (tokens, weight) of each size.

    >>> half = prompt_moments([(100, 1), (900, 1)], step_tokens=512, quantile=0.95)
    >>> half.tokens, half.steps, half.quantile_tokens
    (500.0, 1.5, 900)
    """
    found = sorted((size, weight) for size, weight in sizes if weight > 0)
    total = sum(weight for _, weight in found)
    if not found or step_tokens < 1:
        raise InvalidSpec(f"sizes: must have a weight, and step_tokens be at least 1, got {step_tokens}")
    rows = [(size, steps_of(size, step_tokens), weight / total) for size, weight in found]
    longest = _quantile(found, quantile * total)
    return PromptMoments(
        tokens=sum(share * size for size, _, share in rows),
        tokens_square=sum(share * size * size for size, _, share in rows),
        steps=sum(share * steps for _, steps, share in rows),
        steps_square=sum(share * steps * steps for _, steps, share in rows),
        tokens_times_steps=sum(share * size * steps for size, steps, share in rows),
        quantile_tokens=longest,
        quantile_steps=steps_of(longest, step_tokens),
    )


def steps_of(tokens: float, step_tokens: float) -> int:
    """
    >>> steps_of(0, 512), steps_of(512, 512), steps_of(513, 512)
    (1, 1, 2)
    """
    return max(1, math.ceil(tokens / step_tokens))


def exponential_sizes(mean: float, points: int = 20) -> list[tuple[float, float]]:
    """Sizes of equal weight whose mean is that, for when only the mean is known.

    >>> sizes = exponential_sizes(100)
    >>> round(sum(size for size, _ in sizes) / len(sizes)), round(sizes[-1][0])
    (100, 375)
    """
    middles = [-math.log(1 - (index + 0.5) / points) for index in range(points)]
    factor = mean * points / sum(middles)
    return [(middle * factor, 1.0) for middle in middles]


def _quantile(found: Sequence[tuple[float, float]], wanted: float) -> float:
    passed = 0.0
    for size, weight in found:
        passed += weight
        if passed >= wanted:
            return size
    return found[-1][0]
