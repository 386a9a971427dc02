"""Attainment against replica-hours: medians over seeds, and what a sweep costs at an attainment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from octavo_operator.simulation.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One policy on one load: medians over its seeds."""

    policy: str
    workload: str
    cold_start_seconds: float
    num_seeds: int
    attained_percent: float
    worst_attained_percent: float
    replica_hours: float
    reversals_per_hour: float
    aborted: int
    """Of all seeds."""
    preemptions: float
    lowered_in_blackout: int
    """Of all seeds."""


def medians(outcomes: Iterable[Outcome]) -> list[Point]:
    """One point for each policy, load and cold start, in the order they came."""
    groups: dict[tuple[str, str, float], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.policy, one.workload, one.cold_start_seconds), []).append(one)
    return [_median_of(group) for group in groups.values()]


def _median_of(group: Sequence[Outcome]) -> Point:
    first = group[0]
    return Point(
        policy=first.policy,
        workload=first.workload,
        cold_start_seconds=first.cold_start_seconds,
        num_seeds=len(group),
        attained_percent=median(one.attained_percent for one in group),
        worst_attained_percent=min(one.attained_percent for one in group),
        replica_hours=median(one.replica_hours for one in group),
        reversals_per_hour=median(one.reversals_per_hour for one in group),
        aborted=sum(one.aborted for one in group),
        preemptions=median(one.preemptions for one in group),
        lowered_in_blackout=sum(one.lowered_in_blackout for one in group),
    )


def hours_at(sweep: Sequence[tuple[float, float]], attained: float) -> float | None:
    """Least replica-hours at which a sweep of (attained, hours) attains so much; None where it never does.

    Between neighbours of the sweep both are taken to change together.

    >>> hours_at([(99.0, 50.0), (95.0, 40.0), (80.0, 38.0)], 97.0)
    45.0
    >>> hours_at([(99.0, 50.0), (95.0, 40.0)], 99.5) is None
    True
    """
    hours = [each for _, each in sweep]
    places = places_attaining([reached for reached, _ in sweep], attained)
    return min((hours_of(hours, place) for place in places), default=None)


def places_attaining(sweep: Sequence[float], attained: float) -> Iterator[float]:
    """Places of a sweep that attain so much: whole numbers at its points, others between two that just do.

    >>> list(places_attaining([99.0, 95.0, 80.0], 97.0))
    [0, 0.5]
    """
    yield from (place for place, reached in enumerate(sweep) if reached >= attained)
    for place, (left, right) in enumerate(pairwise(sweep)):
        if left != right and min(left, right) <= attained <= max(left, right):
            yield place + (attained - left) / (right - left)


def hours_of(hours: Sequence[float], place: float) -> float:
    """
    >>> hours_of([50.0, 40.0], 0.5), hours_of([50.0, 40.0], 1)
    (45.0, 40.0)
    """
    left, share = int(place), place % 1
    return hours[left] + share * (hours[left + 1] - hours[left]) if share else hours[left]
