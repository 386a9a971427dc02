"""Columns for people; programs read `--output json`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, each as wide as its widest cell.

    >>> print(table(("NAME", "N"), (("a", "1"), ("long", "2"))))
    NAME  N
    a     1
    long  2
    """
    lines = (header, *rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def age(then: str, now: str) -> str:
    """Between two of Kubernetes' times, in one unit.

    >>> age("2026-01-01T00:00:00Z", "2026-01-03T12:00:00Z")
    '2d'
    """
    seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"
