"""Requests of a recorded trace: when each came, tokens of its prompt and of its output.

The format is that of the Azure LLM inference traces 2023: TIMESTAMP, ContextTokens, GeneratedTokens.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import numpy as np

from octavo.errors import InvalidSpec
from octavo_operator.simulation.traffic import Drawn
from octavo_operator.simulation.workloads import Workload

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MICROSECOND_LENGTH: Final = len("2023-11-16 18:17:03.979960")
"""The traces have a seventh digit, which no clock of ours reads."""
MOST_TOKENS: Final = 10**9
"""More than any model takes; beyond it something else stands in the column."""


def parse_trace(lines: Iterable[str], *, name: str) -> Workload:
    """All its requests from the first one's arrival on; nothing is known of prefixes."""
    rows = csv.DictReader(lines)
    try:
        parsed = sorted(_read(rows))
    except csv.Error as error:
        raise InvalidSpec(f"trace, line {rows.line_num + 1}: {error}; mend or remove it") from None
    if not parsed:
        raise InvalidSpec("trace: holds no request")
    first = parsed[0][0]
    arrival = np.array([at - first for at, _, _ in parsed])
    nothing = np.zeros(len(parsed), dtype=np.int64)
    requests = Drawn(
        arrival=arrival,
        prompt=np.array([prompt for _, prompt, _ in parsed], dtype=np.int64),
        output=np.array([output for _, _, output in parsed], dtype=np.int64),
        shared=nothing,
        reusable=nothing.copy(),
    )
    return Workload(name=name, seconds=float(arrival[-1]) + 1.0, requests=requests)


def _read(rows: csv.DictReader[str]) -> Iterator[tuple[float, int, int]]:
    missing = set(COLUMNS) - set(rows.fieldnames or ())
    if missing:
        raise InvalidSpec(f"trace: no column {', '.join(sorted(missing))}; it needs {', '.join(COLUMNS)}")
    yield from (_parse(row, rows.line_num) for row in rows)


def _parse(row: Mapping[str, str], line: int) -> tuple[float, int, int]:
    try:
        moment = datetime.fromisoformat(row["TIMESTAMP"][:MICROSECOND_LENGTH])
        prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"trace, line {line}: {error}; mend or remove it") from None
    if not (1 <= prompt <= MOST_TOKENS and 1 <= output <= MOST_TOKENS):
        raise InvalidSpec(
            f"trace, line {line}: tokens must be from 1 to {MOST_TOKENS}, got {prompt} and {output}; "
            "mend or remove it"
        )
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return at.timestamp(), prompt, output
