"""A report as Markdown: the tables that the command prints and the result page shows."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

from benchmarks.paging.report import Report, Row

WASTE_HEAD = (
    "slots",
    "block size",
    "layers",
    "unused per sequence, mean",
    "(B−1)/2",
    "unused, most",
    "B−1",
    "preemptions",
    "recomputed tokens",
)
ADMITTED_HEAD = (
    "slots",
    "block size",
    "layers",
    "paged",
    "reserving max_model_len",
    "reserving prompt + max_tokens",
    "reserving the true length",
    "slots filled: paged",
    "max_model_len",
    "prompt + max_tokens",
    "true length",
)


def as_tables(report: Report) -> str:
    """Workload and two tables."""
    return "\n".join(
        [
            f"Workload: {report.workload}. Measured {report.date}.",
            "",
            "Waste and preemption, paged:",
            "",
            *_table(WASTE_HEAD, [_waste_cells(row) for row in report.rows]),
            "",
            "Sequences admitted at once while others waited, and slots that held a token (means over steps):",
            "",
            *_table(ADMITTED_HEAD, [_admitted_cells(row) for row in report.rows]),
        ]
    )


def _table(head: SequenceOf[str], rows: SequenceOf[SequenceOf[str]]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---:" if column != 2 else "---" for column in range(len(head))])
    yield from (_line(row) for row in rows)


def _line(cells: SequenceOf[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _scenario_cells(row: Row) -> tuple[str, str, str]:
    return f"{row.pool_slots}", f"{row.block_size}", row.layers


def _waste_cells(row: Row) -> tuple[str, ...]:
    return (
        *_scenario_cells(row),
        f"{row.paged.mean_unused_slots:.2f}",
        f"{(row.block_size - 1) / 2:.1f}",
        f"{row.paged.max_unused_slots}",
        f"{row.block_size - 1}",
        f"{row.paged.preemptions}",
        f"{row.paged.recomputed_tokens}",
    )


def _admitted_cells(row: Row) -> tuple[str, ...]:
    uses = (row.paged.memory, *row.contiguous.values())
    return (
        *_scenario_cells(row),
        *(f"{use.mean_admitted:.1f}" for use in uses),
        *(f"{use.filled_ratio:.0%}" for use in uses),
    )
