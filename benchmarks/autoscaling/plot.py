"""The frontier: attainment against replica-hours, one panel for each load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.autoscaling.cases import COLD_STARTS, NAMED, OCTAVO, SWEEPS, SWEPT, Case
from benchmarks.autoscaling.frontier import Point, medians
from octavo_operator.simulation.outcome import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: Final = tuple((load, cold_start) for cold_start in COLD_STARTS for load in SWEEPS)
OURS, SWEEP, OTHERS = "#1f5fa8", "#d9a441", "#888888"


def write_plots(outcomes: Mapping[Case, Outcome], *, png: Path, svg: Path) -> None:
    """The same figure twice: for pages and for zooming in."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "octavo"}):
        figure = Figure(figsize=(15, 8), dpi=110, layout="constrained")
        for axes, (workload, cold_start) in zip(figure.subplots(2, len(SWEEPS)).flat, PANELS, strict=True):
            points = [
                point
                for point in medians(outcomes.values())
                if (point.workload, point.cold_start_seconds) == (workload, cold_start)
            ]
            _draw(axes, points, f"{workload}, cold start {cold_start:.0f} s")
        figure.suptitle("Simulated: requests within TTFT 2 s and mean TPOT 80 ms, medians over seeds")
        figure.savefig(png, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})


def _draw(axes: Axes, points: list[Point], title: str) -> None:
    sweep = [point for name in SWEPT for point in points if point.policy == name]
    axes.plot(
        [point.replica_hours for point in sweep],
        [point.attained_percent for point in sweep],
        "o-",
        color=SWEEP,
        label="KEDA in-flight, by target",
    )
    for point in sweep:
        _name(axes, point, point.policy.rpartition(" ")[2])
    for point in points:
        if point.policy == OCTAVO:
            axes.plot(point.replica_hours, point.attained_percent, "D", color=OURS, label="Octavo")
        elif point.policy in NAMED:
            axes.plot(point.replica_hours, point.attained_percent, "x", color=OTHERS)
            _name(axes, point, point.policy)
    axes.axhline(95, color="#b5483a", linewidth=0.8, linestyle="--")
    axes.set_xlabel("replica-hours")
    axes.set_ylabel("requests within the objective, %")
    axes.set_title(title)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _name(axes: Axes, point: Point, text: str) -> None:
    axes.annotate(
        text,
        (point.replica_hours, point.attained_percent),
        xytext=(4, -9),
        textcoords="offset points",
        fontsize=7,
    )
