"""When requests come: a renewal process of a given burstiness, stretched along a rate that changes.

The gaps are drawn for a rate of one and a coefficient of variation (CV); the result is read through the
integral of the rate, so that bursts keep their size while the rate moves.
"""

from __future__ import annotations

import math

import numpy as np

from octavo_operator.simulation.fleet_state import Floats

GAMMA_UP_TO_CV = 3.0
"""Burstier gaps come from two exponentials: a gamma of such a CV is heaps of requests at one moment."""


def unit_gaps(random: np.random.Generator, *, variation: float, count: int) -> Floats:
    """Gaps with mean one and the given coefficient of variation."""
    if variation <= GAMMA_UP_TO_CV:
        shape = 1 / (variation * variation)
        return random.gamma(shape, 1 / shape, count)
    return _hyperexponential(random, variation=variation, count=count)


def _hyperexponential(random: np.random.Generator, *, variation: float, count: int) -> Floats:
    """Two phases with balanced means: half of the time is many short gaps, half is few long ones."""
    squared = variation * variation
    short = (1 + math.sqrt((squared - 1) / (squared + 1))) / 2
    is_short = random.random(count) < short
    means = np.where(is_short, 1 / (2 * short), 1 / (2 * (1 - short)))
    return random.exponential(1.0, count) * means


def arrivals(random: np.random.Generator, rate: Floats, *, variation: float) -> Floats:
    """Times of arrival for a rate given second by second."""
    passed = np.concatenate(([0.0], np.cumsum(rate)))
    expected = passed[-1]
    count = int(expected + 10 * (1 + variation) * math.sqrt(expected + 1)) + 10
    moments = np.cumsum(unit_gaps(random, variation=variation, count=count))
    while moments[-1] < expected:
        more = np.cumsum(unit_gaps(random, variation=variation, count=count))
        moments = np.concatenate((moments, moments[-1] + more))
    found: Floats = np.interp(moments[moments < expected], passed, np.arange(len(passed), dtype=np.float64))
    return found
