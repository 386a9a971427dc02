"""`octavo history NAME`: the revisions of one service."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from octavo_operator.api.names import SHORT_REVISION_LENGTH
from octavo_operator.cli.cluster import add_cluster_options, connect
from octavo_operator.cli.exit_statuses import OK
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.revisions import HistoryLine, history_lines
from octavo_operator.cli.table import table

HEADER = ("NUMBER", "REVISION", "COMMIT", "WORDS", "IMAGE", "PROVEN", "NOW")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo history", description="The revisions of one InferenceService, oldest first."
    )
    parser.add_argument("name", metavar="NAME", help="of the InferenceService")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    add_cluster_options(parser)
    return parser


@report_errors("history")
def main(argv: Sequence[str]) -> int:
    """Exit status: 0 shown, 4 no answer of the cluster, 5 no such service."""
    options = build_parser().parse_args(argv)
    access = connect(options)
    lines = history_lines(access.read_service(options.name), access.list_revisions(options.name))
    if options.output == "json":
        print(json.dumps([line.as_json() for line in lines], indent=2))
    else:
        print(history_table(lines))
    return OK


def history_table(lines: Sequence[HistoryLine]) -> str:
    return table(HEADER, [_cells(line) for line in lines])


def _cells(line: HistoryLine) -> tuple[str, ...]:
    return (
        str(line.number),
        line.hash,
        line.commit.removeprefix("sha256:")[:SHORT_REVISION_LENGTH],
        line.words,
        line.image,
        line.proven_at or "never",
        ", ".join(line.roles),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
