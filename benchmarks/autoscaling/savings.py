"""Replica-hours that the planner saves against KEDA on requests in flight, at equal attainment.

Twice, since a tuned target is two things. *One target for the load* is what somebody who has seen all of it
could set: it attains, in the median over seeds, what the planner attains. *A target for each seed* is what
nobody can set: another one for every hour of traffic, known before it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.autoscaling.cases import OCTAVO, SWEEPS, Case
from benchmarks.autoscaling.frontier import hours_at, hours_of, places_attaining
from octavo_operator.simulation.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Fewer replica-hours at equal attainment, in percent of the baseline's, seed by seed."""

    percents: tuple[float, ...]
    """One for each seed in which the baseline attains as much."""
    out_of_reach: int
    """Seeds in which no target attains as much."""

    @property
    def percent(self) -> float | None:
        """The median; a seed out of reach counts as the highest. None where that is the median."""
        values = sorted([*self.percents, *([float("inf")] * self.out_of_reach)])
        middle = median(values) if values else None
        return None if middle == float("inf") else middle


@dataclass(frozen=True, slots=True)
class _Runs:
    """Outcomes of one load by seed, for the seeds that have the planner and the whole sweep."""

    ours: Mapping[int, Outcome]
    swept: Mapping[str, Mapping[int, Outcome]]
    """By target, ascending."""


def _runs(outcomes: Mapping[Case, Outcome], workload: str, cold_start_seconds: float) -> _Runs:
    targets = SWEEPS[workload]
    by_policy: dict[str, dict[int, Outcome]] = {name: {} for name in (OCTAVO, *targets)}
    for one in outcomes.values():
        of_load = (one.workload, one.cold_start_seconds) == (workload, cold_start_seconds)
        if of_load and one.policy in by_policy:
            by_policy[one.policy][one.seed] = one
    whole = set.intersection(*(set(runs) for runs in by_policy.values()))
    kept = {
        name: {seed: run for seed, run in runs.items() if seed in whole} for name, runs in by_policy.items()
    }
    return _Runs(kept[OCTAVO], {name: kept[name] for name in targets})


def saving_by_seed(outcomes: Mapping[Case, Outcome], workload: str, cold_start_seconds: float) -> Saving:
    """Against the best target of each seed."""
    runs = _runs(outcomes, workload, cold_start_seconds)
    percents: list[float] = []
    for seed, ours in runs.ours.items():
        sweep = [(by[seed].attained_percent, by[seed].replica_hours) for by in runs.swept.values()]
        theirs = hours_at(sweep, ours.attained_percent)
        if theirs is not None:
            percents.append(_percent(ours, theirs))
    return Saving(percents=tuple(percents), out_of_reach=len(runs.ours) - len(percents))


def saving_by_load(outcomes: Mapping[Case, Outcome], workload: str, cold_start_seconds: float) -> Saving:
    """Against the cheapest one target that attains as much in the median."""
    runs = _runs(outcomes, workload, cold_start_seconds)
    if not runs.ours:
        return Saving(percents=(), out_of_reach=0)
    attained = median(one.attained_percent for one in runs.ours.values())
    sweep = [median(one.attained_percent for one in by.values()) for by in runs.swept.values()]
    found = [_hours_by_seed(runs, place) for place in places_attaining(sweep, attained)]
    if not found:
        return Saving(percents=(), out_of_reach=len(runs.ours))
    theirs = min(found, key=lambda hours: sum(hours.values()))
    return Saving(percents=tuple(_percent(one, theirs[s]) for s, one in runs.ours.items()), out_of_reach=0)


def _hours_by_seed(runs: _Runs, place: float) -> dict[int, float]:
    """Of one target, or of one between two."""
    return {
        seed: hours_of([by[seed].replica_hours for by in runs.swept.values()], place) for seed in runs.ours
    }


def _percent(ours: Outcome, theirs: float) -> float:
    return 100 * (1 - ours.replica_hours / theirs)
