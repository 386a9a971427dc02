"""Requests of a trace: the tokens of each prompt and of each output, in order of arrival."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from octavo.errors import InvalidSpec

COMMITTED_TRACE: Final = Path(__file__).parents[1] / "data" / "azure_llm_2023_conv_first_1000.csv"
PROMPT_COLUMN: Final = "ContextTokens"
OUTPUT_COLUMN: Final = "GeneratedTokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """What is known of one request."""

    num_prompt_tokens: int
    num_output_tokens: int

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return self.num_prompt_tokens + self.num_output_tokens


def read_trace(path: Path, *, limit: int | None = None) -> tuple[TracedRequest, ...]:
    """The first `limit` requests of a CSV file in the columns of the Azure LLM inference traces."""
    if not path.is_file():
        raise InvalidSpec(f"--trace {path}: no such file; leave the flag out to use {COMMITTED_TRACE.name}")
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        missing = {PROMPT_COLUMN, OUTPUT_COLUMN} - set(rows.fieldnames or ())
        if missing:
            raise InvalidSpec(
                f"--trace {path}: has no column {' or '.join(sorted(missing))}; "
                f"give a CSV file with {PROMPT_COLUMN} and {OUTPUT_COLUMN}"
            )
        requests = tuple(
            _parse(row, path, rows.line_num) for row, _ in zip(rows, _counter(limit), strict=False)
        )
    if not requests:
        raise InvalidSpec(f"--trace {path}: holds no request; give a trace with one at least")
    return requests


def _counter(limit: int | None) -> range:
    return range(2**31 if limit is None else limit)


def _parse(row: dict[str, str], path: Path, line: int) -> TracedRequest:
    try:
        prompt, output = int(row[PROMPT_COLUMN]), int(row[OUTPUT_COLUMN])
    except (TypeError, ValueError):
        prompt = output = 0
    if prompt < 1 or output < 1:
        raise InvalidSpec(
            f"--trace {path}, line {line}: prompt {row[PROMPT_COLUMN]!r} and output {row[OUTPUT_COLUMN]!r} "
            "must be whole numbers from 1 up; mend or remove the line"
        )
    return TracedRequest(num_prompt_tokens=prompt, num_output_tokens=output)
