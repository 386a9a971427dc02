"""`python -m benchmarks.paging`: run the report on the committed trace, or on another one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from benchmarks.paging.plot import write_plot
from benchmarks.paging.report import SCENARIOS, Report, build_report
from benchmarks.paging.result_page import as_json, write_result
from benchmarks.paging.tables import as_tables
from benchmarks.paging.trace import COMMITTED_TRACE, TracedRequest, read_trace
from octavo.errors import InvalidSpec


def main(argv: Sequence[str] | None = None) -> int:
    """Run, show, and write what was asked for; 2 for a wrong flag."""
    arguments = parse_arguments(argv)
    try:
        requests = read_trace(arguments.trace, limit=arguments.requests)
        report = run_with_progress(requests, arguments.trace.name)
    except InvalidSpec as error:
        print(f"python -m benchmarks.paging: {error}", file=sys.stderr)
        return 2
    print(as_json(report) if arguments.output == "json" else as_tables(report))
    if arguments.plot is not None:
        write_plot(report, arguments.plot)
    if arguments.write:
        write_result(report)
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Flags; the committed result is of the committed trace and nothing else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paging", description=__doc__)
    parser.add_argument(
        "--trace",
        type=Path,
        default=COMMITTED_TRACE,
        metavar="FILE",
        help=f"CSV (default {COMMITTED_TRACE.name})",
    )
    parser.add_argument("--requests", type=_count, metavar="N", help="only the first N (default: all)")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--plot", type=_png, metavar="FILE.png", help="draw the result")
    parser.add_argument(
        "--write", action="store_true", help="renew result.json, docs/concepts/paging.md and its figure"
    )
    arguments = parser.parse_args(argv)
    if arguments.write and (arguments.requests is not None or arguments.trace != COMMITTED_TRACE):
        parser.error(
            "--write: the committed result is of the whole committed trace; leave out --trace and --requests"
        )
    return arguments


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of requests; give one from 1 up")
    return int(text)


def _png(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".png" or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r}: give a file that ends in .png, in a folder that is there"
        )
    return path


def run_with_progress(requests: Sequence[TracedRequest], trace_name: str) -> Report:
    """All scenarios, with a bar over the requests of all of them."""
    quiet_seconds = 0.2 if sys.stderr.isatty() else 10.0
    total = len(requests) * len(SCENARIOS)
    with tqdm(total=total, unit=" requests", desc="paging", mininterval=quiet_seconds) as bar:
        return build_report(
            requests, trace_name=trace_name, date=date.today().isoformat(), on_finished=bar.update
        )


if __name__ == "__main__":
    sys.exit(main())
