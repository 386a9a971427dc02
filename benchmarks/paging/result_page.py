"""The committed result: a JSON file, the tables in the page on paging, and its figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.paging.paged_run import MemoryUse, PagedMeasurement
from benchmarks.paging.plot import write_plot
from benchmarks.paging.report import Report, Row
from benchmarks.paging.tables import as_tables

ROOT: Final = Path(__file__).parents[2]
RESULT: Final = Path(__file__).with_name("result.json")
PAGE: Final = ROOT / "docs" / "concepts" / "paging.md"
FIGURE: Final = ROOT / "docs" / "concepts" / "paging.png"
BEGIN: Final = "<!-- begin: written by python -m benchmarks.paging --write -->"
END: Final = "<!-- end -->"


def write_result(report: Report) -> None:
    """Renew all three."""
    RESULT.write_text(as_json(report) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), report))
    write_plot(report, FIGURE)


def with_tables(page: str, report: Report) -> str:
    """The page with the report's tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has lost its marks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{as_tables(report)}\n{END}{after}"


def as_json(report: Report) -> str:
    """All of it."""
    return json.dumps(asdict(report), indent=2, ensure_ascii=False)


def read_result() -> Report:
    """The committed report."""
    fields = json.loads(RESULT.read_text())
    return Report(**{**fields, "rows": tuple(_row(row) for row in fields["rows"])})


def _row(fields: Mapping[str, Any]) -> Row:
    paged = {**fields["paged"], "memory": MemoryUse(**fields["paged"]["memory"])}
    contiguous = {name: MemoryUse(**use) for name, use in fields["contiguous"].items()}
    return Row(**{**fields, "paged": PagedMeasurement(**paged), "contiguous": contiguous})
