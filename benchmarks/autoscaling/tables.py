"""The proof in tables: what had to hold and what came out, then every policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from benchmarks.autoscaling.cases import COLD_STARTS, COMPARED, OCTAVO, PROVEN, Case
from benchmarks.autoscaling.frontier import Point, medians
from benchmarks.autoscaling.savings import Saving, saving_by_load, saving_by_seed
from octavo_operator.simulation.outcome import Outcome

OBJECTIVE_PERCENT = 95.0
MOST_REVERSALS = 10.0
SHOWN = ("attained_percent", "replica_hours")
WANTED_SAVINGS = {"conv": 5.0, "mix": 10.0, "shift": 10.0}


def claim_table(outcomes: Mapping[Case, Outcome]) -> str:
    """Each claim with the number that was found, and whether it holds."""
    rows = [*_attained(outcomes), *_saved(outcomes), *_bounds(outcomes)]
    lines = [f"| {claim} | {found} | {'yes' if holds else '**no**'} |" for claim, found, holds in rows]
    return "\n".join(["| claim | found | holds |", "|---|---|---|", *lines])


def _attained(outcomes: Mapping[Case, Outcome]) -> Iterator[tuple[str, str, bool]]:
    points = {(p.workload, p.cold_start_seconds): p for p in medians(_ours(outcomes).values())}
    for workload in PROVEN:
        for cold_start in COLD_STARTS:
            point = points.get((workload, cold_start))
            if point is not None:
                claim = (
                    f"{workload}, cold start {cold_start:.0f} s: at least {OBJECTIVE_PERCENT:.0f} % attained"
                )
                found = (
                    f"{point.attained_percent:.1f} % (worst of {point.num_seeds} seeds "
                    f"{point.worst_attained_percent:.1f} %) for {point.replica_hours:.1f} replica-hours"
                )
                yield claim, found, point.attained_percent >= OBJECTIVE_PERCENT


def _saved(outcomes: Mapping[Case, Outcome]) -> Iterator[tuple[str, str, bool]]:
    for workload, wanted in WANTED_SAVINGS.items():
        for cold_start in COLD_STARTS:
            for tuned, saving in (("load", saving_by_load), ("seed", saving_by_seed)):
                found = saving(outcomes, workload, cold_start)
                claim = (
                    f"{workload}, {cold_start:.0f} s: at least {wanted:.0f} % fewer replica-hours than "
                    f"KEDA in-flight, its target tuned for the {tuned}, at equal attainment"
                )
                yield claim, _saved_words(found), found.percent is None or found.percent >= wanted


def _saved_words(found: Saving) -> str:
    if found.percent is None:
        return f"no target attains as much in {found.out_of_reach} seeds"
    seeds = ", ".join(f"{value:+.1f}" for value in found.percents)
    return f"{found.percent:+.1f} % (seeds: {seeds})"


def _bounds(outcomes: Mapping[Case, Outcome]) -> Iterator[tuple[str, str, bool]]:
    ours = list(_ours(outcomes).values())
    most = max((p.reversals_per_hour for p in medians(ours)), default=0.0)
    yield (
        f"at most {MOST_REVERSALS:.0f} reversals per hour, every load",
        f"{most:.1f}",
        most <= MOST_REVERSALS,
    )
    aborted = sum(one.aborted for one in ours)
    yield (
        "no generation aborted within the drain budget, every load",
        f"{aborted} aborted in {len(ours)} runs",
        aborted == 0,
    )
    blind = [one for one in ours if one.workload == "blackout"]
    lowered = sum(one.lowered_in_blackout for one in blind)
    yield "no scale-down in a blackout", f"{lowered} in {len(blind)} runs", lowered == 0


def _ours(outcomes: Mapping[Case, Outcome]) -> dict[Case, Outcome]:
    return {case: outcome for case, outcome in outcomes.items() if case.policy == OCTAVO}


def policy_table(outcomes: Mapping[Case, Outcome], workload: str, cold_start_seconds: float) -> str:
    """Every policy on one load, the most attained first."""
    points = [
        point
        for point in medians(outcomes.values())
        if (point.workload, point.cold_start_seconds) == (workload, cold_start_seconds)
    ]
    ordered = sorted(points, key=lambda point: -point.attained_percent)
    head = [
        "| policy | seeds | attained % | worst % | replica-hours | reversals/h | preemptions | aborted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_row(point) for point in ordered)])


def _row(point: Point) -> str:
    name = f"**{point.policy}**" if point.policy == OCTAVO else point.policy
    return (
        f"| {name} | {point.num_seeds} | {point.attained_percent:.1f} | {point.worst_attained_percent:.1f} | "
        f"{point.replica_hours:.1f} | {point.reversals_per_hour:.1f} | {point.preemptions:.0f} | "
        f"{point.aborted} |"
    )


def load_table(outcomes: Mapping[Case, Outcome]) -> str:
    """The planner on every load."""
    points = medians(_ours(outcomes).values())
    head = [
        f"| load | cold start | seeds | attained % | replica-hours | reversals/h | {COMPARED} |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = []
    for point in sorted(points, key=lambda one: (one.workload, one.cold_start_seconds)):
        other = [
            one
            for one in outcomes.values()
            if (one.policy, one.workload, one.cold_start_seconds)
            == (COMPARED, point.workload, point.cold_start_seconds)
        ]
        against = ""
        if other:
            attained, hours = (median(getattr(one, name) for one in other) for name in SHOWN)
            against = f"{attained:.1f} %, {hours:.1f} h"
        rows.append(
            f"| {point.workload} | {point.cold_start_seconds:.0f} s | {point.num_seeds} | "
            f"{point.attained_percent:.1f} | {point.replica_hours:.1f} | {point.reversals_per_hour:.1f} | "
            f"{against} |"
        )
    return "\n".join([*head, *rows])
