"""`python -m benchmarks.autoscaling`: run what the proof lacks, and show or renew it.

Outcomes are kept as they come (`--keep`), so that a run which was stopped goes on where it was. What other
code has simulated is kept under another name, and never counted in.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from benchmarks.autoscaling.cases import all_cases
from benchmarks.autoscaling.result_page import as_tables, write_result
from benchmarks.autoscaling.sweep import read_outcomes, run_cases

ROOT: Final = Path(__file__).parents[2]
SIMULATED: Final = (
    "core/octavo",
    "operator/octavo_operator/decide/scaling",
    "operator/octavo_operator/simulation",
    "benchmarks/autoscaling",
)
"""The code that an outcome depends on."""


def place_to_keep(root: Path = ROOT) -> Path:
    """Of the outcomes of this code."""
    digest = hashlib.sha256()
    for folder in SIMULATED:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return root / ".octavo" / f"autoscaling-{digest.hexdigest()[:12]}.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoscaling", description=__doc__)
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="at once (2)")
    kept = place_to_keep()
    parser.add_argument("--keep", type=Path, default=kept, metavar="FILE", help=f"default {kept.name}")
    parser.add_argument("--only-kept", action="store_true", help="run nothing more; use what is kept")
    parser.add_argument("--write", action="store_true", help="renew result.json, the page and its figures")
    options = parser.parse_args(argv)
    if options.processes < 1:
        parser.error(f"--processes: must be from 1 up, got {options.processes}")
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    if options.only_kept:
        known = read_outcomes(options.keep)
        outcomes = {case: known[case] for case in dict.fromkeys(all_cases()) if case in known}
    else:
        outcomes = run_cases(all_cases(), kept=options.keep, processes=options.processes)
    today = date.today().isoformat()
    print(as_tables(outcomes, date=today))
    if options.write:
        write_result(outcomes, date=today)
    return 0


if __name__ == "__main__":
    sys.exit(main())
