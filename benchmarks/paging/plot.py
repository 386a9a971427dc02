"""A report as one figure: sequences admitted at equal memory, and slots that paging leaves unused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.paging.report import FULL, Report, Row, Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = {
    "paged": "#1f5fa8",
    "true_length": "#8fb6dd",
    "prompt_and_max_tokens": "#d9a441",
    "max_model_len": "#b5483a",
}
LABELS: Final = {
    "paged": "paged",
    "true_length": "contiguous, true length (knows the future)",
    "prompt_and_max_tokens": "contiguous, prompt + max_tokens",
    "max_model_len": "contiguous, max_model_len",
}
FULL_LAYERS: Final = Scenario(pool_slots=1, block_size=1, groups=FULL).layers


def write_plot(report: Report, path: Path) -> None:
    """Draw the rows with full attention; the smallest block size stands for the comparison."""
    from matplotlib.figure import Figure

    rows = [row for row in report.rows if row.layers == FULL_LAYERS]
    figure = Figure(figsize=(11, 4.2), dpi=110, layout="constrained")
    admitted, waste = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_admitted(admitted, [row for row in rows if row.block_size == rows[0].block_size])
    _draw_waste(waste, [row for row in rows if row.pool_slots == rows[0].pool_slots])
    figure.suptitle(
        "Azure conversation trace 2023, on the engine's scheduler (memory only, no time is measured)"
    )
    figure.savefig(path, metadata={"Software": None})


def _admitted(row: Row, name: str) -> float:
    return (row.paged.memory if name == "paged" else row.contiguous[name]).mean_admitted


def _draw_admitted(axes: Axes, rows: list[Row]) -> None:
    width = 0.2
    for offset, name in enumerate(COLOURS):
        places = [index + (offset - 1.5) * width for index in range(len(rows))]
        bars = axes.bar(
            places, [_admitted(row, name) for row in rows], width, color=COLOURS[name], label=LABELS[name]
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(range(len(rows)), [f"{row.pool_slots:,}" for row in rows])
    axes.set_xlabel("slots of KV cache (tokens)")
    axes.set_ylabel("sequences admitted at once, mean")
    axes.set_title(f"Equal memory, block size {rows[0].block_size}")
    axes.legend(frameon=False, fontsize=8)


def _draw_waste(axes: Axes, rows: list[Row]) -> None:
    sizes = [row.block_size for row in rows]
    axes.plot(sizes, [size - 1 for size in sizes], "--", color="#888888", label="bound: B − 1")
    axes.plot(
        sizes, [row.paged.max_unused_slots for row in rows], "v", color="#b5483a", label="most at any step"
    )
    axes.plot(sizes, [(size - 1) / 2 for size in sizes], ":", color="#888888", label="expected: (B − 1) / 2")
    axes.plot(sizes, [row.paged.mean_unused_slots for row in rows], "o", color="#1f5fa8", label="mean")
    axes.set_xticks(sizes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("block size B (tokens)")
    axes.set_ylabel("unused slots per sequence")
    axes.set_title(f"Waste, {rows[0].pool_slots:,} slots")
    axes.legend(frameon=False, fontsize=8)
