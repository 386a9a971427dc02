"""Whether the simulator's law of a step has the shape of the real engine's steps.

The law's five costs are fitted to every other recorded step and tried on the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.autoscaling.recording import RECORDED

Floats = NDArray[np.float64]
NUM_TERMS: Final = 5
"""A constant, p, C, B and Σ(p·C)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """How well the law tells the times of steps that it was not fitted to."""

    num_steps: int
    median_error: float
    """Of a step's time, relative."""
    total_error: float
    """Of the sum of all times, relative."""
    total_error_without_attention: float
    """The same for the planner's four terms."""


def read_steps(path: Path = RECORDED) -> Floats:
    """Rows of p, C, B, Σ(p·C) and seconds."""
    return np.array(json.loads(path.read_text())["steps"], dtype=np.float64)


def fit_steps(steps: Floats) -> StepFit:
    """Even steps teach, odd steps test."""
    errors, totals = [], []
    for terms in (NUM_TERMS, NUM_TERMS - 1):
        matrix = np.column_stack([np.ones(len(steps)), steps[:, :4]])[:, :terms]
        costs = _non_negative(matrix[0::2], steps[0::2, 4])
        told, seen = matrix[1::2] @ costs, steps[1::2, 4]
        errors.append(float(np.median(np.abs(told / seen - 1))))
        totals.append(float(abs(told.sum() / seen.sum() - 1)))
    return StepFit(
        num_steps=len(steps),
        median_error=errors[0],
        total_error=totals[0],
        total_error_without_attention=totals[1],
    )


def _non_negative(matrix: Floats, seconds: Floats) -> Floats:
    """Least squares of relative errors, terms with a negative cost left out one by one."""
    weighted = matrix / seconds[:, None]
    kept = list(range(matrix.shape[1]))
    while True:
        found = np.linalg.lstsq(weighted[:, kept], np.ones(len(seconds)), rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(np.argmin(found * matrix[:, kept].mean(axis=0))))
    costs = np.zeros(matrix.shape[1])
    costs[kept] = found
    return costs
