"""`octavo status`: how a service does, and why; or one line for each of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from octavo_operator.cli.cluster import add_cluster_options, connect
from octavo_operator.cli.exit_statuses import NOT_READY, OK, STALLED
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.service_words import describe, listed
from octavo_operator.decide.conditions import format_time

DESCRIPTION = """\
How an InferenceService does, and why; without a name, one line for each of them.
Exit status: 0 ready (or a list), 1 on its way, 2 bad input, 3 stalled: somebody must change something,
4 no answer of the cluster, 5 no such service."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo status", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="of the InferenceService")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="list those of every namespace")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    add_cluster_options(parser)
    return parser


@report_errors("status")
def main(argv: Sequence[str]) -> int:
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.name and options.all_namespaces:
        parser.error("--all-namespaces lists; leave it out, or leave out the name")
    access, now = connect(options), format_time(datetime.now(UTC))
    if options.name is None:
        bodies = access.list_services(everywhere=options.all_namespaces)
        print(
            json.dumps(list(map(summary, bodies)), indent=2)
            if options.output == "json"
            else listed(bodies, now)
        )
        return OK
    body = access.read_service(options.name)
    print(json.dumps(summary(body), indent=2) if options.output == "json" else describe(body, now))
    return exit_status(body)


def summary(body: Mapping[str, Any]) -> dict[str, Any]:
    """Name, generation and status as stored; what a script would pick out of the object."""
    metadata = body["metadata"]
    keys = ("namespace", "name", "generation")
    return {**{key: metadata.get(key) for key in keys}, "status": body.get("status", {})}


def exit_status(body: Mapping[str, Any]) -> int:
    """Conditions of an older generation say nothing about the one there is."""
    status = body.get("status", {})
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return NOT_READY
    holds = {one["type"] for one in status.get("conditions", ()) if one["status"] == "True"}
    if "Stalled" in holds:
        return STALLED
    return OK if "Ready" in holds else NOT_READY


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
