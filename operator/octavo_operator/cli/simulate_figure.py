"""The figure of a comparison: load and ready replicas over time, attainment against replica-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from octavo_operator.cli.simulate_load import Load
from octavo_operator.cli.simulate_report import describe_load, describe_objective, describe_replica
from octavo_operator.simulation.comparison import Comparison
from octavo_operator.simulation.fleet_state import Floats
from octavo_operator.simulation.outcome import Objective, Outcome
from octavo_operator.simulation.run import Run, Setting
from octavo_operator.simulation.workloads import Workload

MINUTE: Final = 60.0
HOUR: Final = 3600.0
FEWEST_BINS: Final = 60
LONGEST_IN_MINUTES: Final = 6 * HOUR
ROOM: Final = 1.12
"""Times the most replicas: the top of their panel."""
RED: Final = "#b5483a"
GREY: Final = "#888888"
PALE: Final = "#eeeeee"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How one policy is drawn, in both panels."""

    colour: str
    marker: str
    line: Literal["-", "--"] = "-"
    width: float = 1.1
    size: float = 7.0
    front: int = 2
    """Higher ones cover lower ones."""


OURS: Final = Look(colour="#1f5fa8", marker="D", width=2.4, front=4)
SWEPT: Final = tuple(
    Look(colour=colour, marker="o") for colour in ("#7d5310", "#b57d1c", "#d9a441", "#e8c98a")
)
"""KEDA's targets, ascending: the paler, the more requests in flight."""
USED: Final = Look(colour="#3f8f5f", marker="^")
FIXED: Final = Look(colour="#444444", marker="s", line="--", size=11.0, front=1)


def looks_of(policies: Sequence[str]) -> dict[str, Look]:
    """By policy, in the order of a comparison."""
    ours, *swept, used, fixed = policies
    return {ours: OURS, **dict(zip(swept, SWEPT, strict=False)), used: USED, fixed: FIXED}


def draw(comparison: Comparison, load: Load, setting: Setting) -> Figure:
    figure = Figure(figsize=(12, 6.8), dpi=110, layout="constrained")
    axes = figure.subplot_mosaic(
        [["load", "frontier"], ["replicas", "frontier"]], width_ratios=(2, 1), height_ratios=(1, 2)
    )
    looks = looks_of([outcome.policy for outcome in comparison.outcomes])
    time = Time.of(load.workload.seconds)
    _draw_load(axes["load"], load.workload, time)
    _draw_replicas(axes["replicas"], comparison.runs, looks, setting, time)
    _draw_frontier(axes["frontier"], comparison.outcomes, looks, setting.objective)
    for panel in (axes["load"], axes["replicas"]):
        panel.set_xlim(0, load.workload.seconds / time.unit)
        panel.axvspan(0, setting.counted_from(load.workload.seconds) / time.unit, color=PALE, zorder=0)
    axes["load"].tick_params(labelbottom=False)
    axes["replicas"].set_xlabel(time.name)
    figure.legend(handles=_legend(looks), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(_title(load, setting), fontsize=10, parse_math=False)
    return figure


def _title(load: Load, setting: Setting) -> str:
    words = (describe_load(load), describe_replica(setting.engine), describe_objective(setting))
    return "\n".join(words)


def _legend(looks: dict[str, Look]) -> list[Artist]:
    policies = [
        Line2D(
            [],
            [],
            color=look.colour,
            linestyle=look.line,
            linewidth=look.width,
            marker=look.marker,
            label=name,
        )
        for name, look in looks.items()
    ]
    objective = Line2D([], [], color=RED, linestyle="--", linewidth=0.8, label="objective")
    return [*policies, objective, Patch(color=PALE, label="warm-up, not counted")]


# Over time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """What the axis of time counts."""

    unit: float
    name: str

    @classmethod
    def of(cls, seconds: float) -> Time:
        return (
            cls(unit=HOUR, name="hours") if seconds > LONGEST_IN_MINUTES else cls(unit=MINUTE, name="minutes")
        )


def offered_load(workload: Workload) -> tuple[Floats, Floats]:
    """Edges of the bins in seconds, and the requests per second in each: minutes, or less of a short load."""
    bins = max(FEWEST_BINS, round(workload.seconds / MINUTE))
    counts, edges = np.histogram(workload.requests.arrival, bins=bins, range=(0.0, workload.seconds))
    return edges, counts * (bins / workload.seconds)


def ready_over_time(run: Run, setting: Setting) -> tuple[Floats, list[int]]:
    """At the start and at each decision: the second, and how many pods get requests from then on."""
    times = np.array([0.0, *(moment.at for moment in run.moments)])
    return times, [setting.initial_replicas, *(moment.ready for moment in run.moments)]


def _draw_load(axes: Axes, workload: Workload, time: Time) -> None:
    edges, rates = offered_load(workload)
    axes.stairs(rates, edges / time.unit, fill=True, color=GREY, alpha=0.7)
    axes.set_ylabel("offered load, req/s")


def _draw_replicas(
    axes: Axes, runs: Sequence[Run], looks: dict[str, Look], setting: Setting, time: Time
) -> None:
    most = 1
    for run in runs:
        look = looks[run.outcome.policy]
        times, ready = ready_over_time(run, setting)
        most = max(most, *ready)
        axes.step(
            times / time.unit,
            ready,
            where="post",
            color=look.colour,
            linestyle=look.line,
            linewidth=look.width,
            zorder=look.front,
        )
    axes.set_ylim(0, ROOM * most)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("ready replicas")


# Against their price ------------------------------------------------------------------------------------


def _draw_frontier(
    axes: Axes, outcomes: Sequence[Outcome], looks: dict[str, Look], objective: Objective
) -> None:
    """A line joins KEDA's targets: what can be had by choosing one."""
    _, *swept, _, _ = outcomes
    points = [(outcome.replica_hours, outcome.attained_percent) for outcome in swept]
    axes.plot(*zip(*points, strict=True), color=SWEPT[1].colour, linewidth=0.8, zorder=1)
    for outcome in outcomes:
        look = looks[outcome.policy]
        axes.plot(
            outcome.replica_hours,
            outcome.attained_percent,
            look.marker,
            color=look.colour,
            markersize=look.size,
            zorder=look.front,
        )
    axes.axhline(objective.percent, color=RED, linewidth=0.8, linestyle="--", zorder=1)
    least = min(objective.percent, *(outcome.attained_percent for outcome in outcomes))
    margin = 0.05 * (101 - least)
    axes.set_ylim(least - margin, 100 + margin)
    axes.margins(x=0.1)
    axes.set_xlabel("replica-hours")
    axes.set_ylabel("requests within the objective, %")
