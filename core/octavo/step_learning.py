"""Step costs learned from what engines report: recursive least squares around a prior.

Each observation is the mean step of one pod between two scrapes. All is relative to the prior, so that
four costs of different size are learned alike: `1 = θ·h`, with h the prior's share of the measured step.
Context tokens and sequences grow together while every sequence is about as long as the others; then their
two costs cannot be told apart, and only their common factor is learned. So the four numbers learned are the
factors of *a* and *b*, the mean factor of *c* and *d*, and half their difference.

Source: the Kalman filter of a random walk, which is least squares with forgetting that cannot wind up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from octavo.step_model import StepCosts

LEAST_FACTOR: Final = 0.1
MOST_FACTOR: Final = 10.0
"""Learned costs stay within these factors of their prior."""
LEAST_STEPS: Final = 5
"""Fewer steps between two scrapes are no observation."""
STEP_NOISE: Final = 0.15
"""Relative deviation of one step from the model; that of a mean falls with the number of steps."""
MODEL_ERROR: Final = 0.03
"""Relative deviation that no averaging removes: the model is linear, engines are not quite."""
DRIFT: Final = 2e-3
"""Relative change of a cost to be expected from one observation to the next."""
GATE: Final = 4.0
"""An observation further off than so many standard deviations is a stall, not a cost."""
MOST_REJECTED: Final = 12
"""So many in a row are no stalls: the costs have changed, and are learned anew."""
TIED_VARIATION: Final = 0.10
"""Context per sequence must vary by more than this to tell c from d."""
VARIATION_WEIGHT: Final = 0.02
PRIOR_VARIANCE: Final = (1.0, 1.0, 1.0, 0.25)

Vector = tuple[float, float, float, float]
Matrix = tuple[Vector, Vector, Vector, Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """The steps of one engine between two scrapes."""

    steps: float
    seconds: float
    prefill_tokens: float
    context_tokens: float
    sequences: float
    """Sums over the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCosts:
    """What is known of one kind of replica: the prior, the factors on it, and how sure they are."""

    prior: StepCosts
    factors: Vector = (1.0, 1.0, 1.0, 0.0)
    """Of a and of b, the mean of c's and d's, and half of c's less d's."""
    covariance: Matrix
    samples: int = 0
    rejected: int = 0
    """In a row."""
    context_mean: float = 0.0
    context_variance: float = 0.0
    """Of the context tokens per sequence."""

    @property
    def costs(self) -> StepCosts:
        """As they are used: each within its factors of the prior."""
        base, prefill, common, difference = self.factors
        return StepCosts(
            base_seconds=_confine(base) * self.prior.base_seconds,
            prefill_token_seconds=_confine(prefill) * self.prior.prefill_token_seconds,
            context_token_seconds=_confine(common + difference) * self.prior.context_token_seconds,
            sequence_seconds=_confine(common - difference) * self.prior.sequence_seconds,
        )

    @property
    def is_tied(self) -> bool:
        """Whether the costs of context and of sequences cannot be told apart."""
        return math.sqrt(max(0.0, self.context_variance)) < TIED_VARIATION * self.context_mean


def start_learning(prior: StepCosts) -> LearnedCosts:
    """Knowing the prior alone.

    >>> costs = StepCosts(
    ...     base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
    ... )
    >>> start_learning(costs).costs == costs
    True
    """
    return LearnedCosts(prior=prior, covariance=_prior_covariance())


def learn(known: LearnedCosts, sample: StepSample) -> LearnedCosts:
    """Take one observation in, unless it is too short or out of all proportion."""
    if not _is_usable(sample):
        return known
    known = _note_context(known, sample)
    regressors = _regressors(known, sample)
    error = 1.0 - _dot(regressors, known.factors)
    noise = STEP_NOISE**2 / sample.steps + MODEL_ERROR**2
    # The difference of c and d is used in the prediction, but not learned while they are tied.
    seen = (*regressors[:3], 0.0) if known.is_tied else regressors
    spread = _times(known.covariance, seen)
    variance = _dot(seen, spread) + noise
    if error * error > GATE * GATE * variance:
        return _reject(known)
    gain = _scaled(spread, 1.0 / variance)
    return replace(
        known,
        factors=_confined(_plus(known.factors, _scaled(gain, error))),
        covariance=_drifted(_minus_outer(known.covariance, gain, spread)),
        samples=known.samples + 1,
        rejected=0,
    )


def _is_usable(sample: StepSample) -> bool:
    numbers = (sample.seconds, sample.prefill_tokens, sample.context_tokens, sample.sequences)
    return (
        LEAST_STEPS <= sample.steps < math.inf
        and all(0 <= number < math.inf for number in numbers)
        and sample.seconds > 0
    )


def _note_context(known: LearnedCosts, sample: StepSample) -> LearnedCosts:
    """Moving mean and variance of the context tokens per sequence."""
    if sample.sequences <= 0:
        return known
    ratio = sample.context_tokens / sample.sequences
    if known.context_mean <= 0:
        return replace(known, context_mean=ratio)
    apart = ratio - known.context_mean
    variance = (1 - VARIATION_WEIGHT) * (known.context_variance + VARIATION_WEIGHT * apart * apart)
    return replace(
        known, context_mean=known.context_mean + VARIATION_WEIGHT * apart, context_variance=variance
    )


def _regressors(known: LearnedCosts, sample: StepSample) -> Vector:
    """The prior's seconds for each factor, as shares of the measured seconds."""
    prior = known.prior
    context = prior.context_token_seconds * sample.context_tokens
    sequences = prior.sequence_seconds * sample.sequences
    seconds = (
        prior.base_seconds * sample.steps,
        prior.prefill_token_seconds * sample.prefill_tokens,
        context + sequences,
        context - sequences,
    )
    return _scaled(seconds, 1.0 / sample.seconds)


def _reject(known: LearnedCosts) -> LearnedCosts:
    if known.rejected + 1 < MOST_REJECTED:
        return replace(known, rejected=known.rejected + 1)
    return replace(known, rejected=0, covariance=_prior_covariance())


def _confine(factor: float) -> float:
    return min(max(factor, LEAST_FACTOR), MOST_FACTOR)


def _confined(factors: Vector) -> Vector:
    base, prefill, common, difference = factors
    context, sequence = _confine(common + difference), _confine(common - difference)
    return (_confine(base), _confine(prefill), (context + sequence) / 2, (context - sequence) / 2)


# Arithmetic of four-vectors ---------------------------------------------------------------------------


def _prior_covariance() -> Matrix:
    a, b, c, d = PRIOR_VARIANCE
    return ((a, 0.0, 0.0, 0.0), (0.0, b, 0.0, 0.0), (0.0, 0.0, c, 0.0), (0.0, 0.0, 0.0, d))


def _vector(values: list[float]) -> Vector:
    first, second, third, fourth = values
    return (first, second, third, fourth)


def _matrix(rows: list[Vector]) -> Matrix:
    first, second, third, fourth = rows
    return (first, second, third, fourth)


def _dot(one: Vector, other: Vector) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return _vector([_dot(row, vector) for row in matrix])


def _scaled(vector: Vector, factor: float) -> Vector:
    return _vector([value * factor for value in vector])


def _plus(one: Vector, other: Vector) -> Vector:
    return _vector([left + right for left, right in zip(one, other, strict=True)])


def _minus_outer(matrix: Matrix, left: Vector, right: Vector) -> Matrix:
    return _matrix(
        [
            _vector([value - left[row] * right[column] for column, value in enumerate(values)])
            for row, values in enumerate(matrix)
        ]
    )


def _drifted(covariance: Matrix) -> Matrix:
    """A little less sure than before, but never less than at the start."""
    variances = [covariance[index][index] + DRIFT**2 for index in range(4)]
    shrink = [
        math.sqrt(most / variance) if variance > most else 1.0
        for variance, most in zip(variances, PRIOR_VARIANCE, strict=True)
    ]
    return _matrix(
        [
            _vector(
                [
                    (variances[row] if row == column else covariance[row][column])
                    * shrink[row]
                    * shrink[column]
                    for column in range(4)
                ]
            )
            for row in range(4)
        ]
    )
