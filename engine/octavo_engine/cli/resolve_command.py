"""`octavo-engine resolve`: what a branch or tag means now, as JSON."""

from __future__ import annotations

import argparse
import json
from typing import Final

from octavo import engine_contract as contract
from octavo_engine.cli.termination import write_termination_log

NAME: Final = "resolve"
SUMMARY: Final = (
    "Print commit, manifest digest, size and architecture of a model as JSON (HF_ENDPOINT, HF_TOKEN)."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Words in, numbers out."""
    parser.add_argument(
        contract.FLAG_FETCH_URI, required=True, metavar="hf://ORG/NAME", help="the repository on the hub"
    )
    parser.add_argument(
        contract.FLAG_FETCH_REVISION, default="main", metavar="REVISION", help="branch, tag or commit (main)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Resolve; the termination log gets the same report as the standard output."""
    from octavo_engine.fetching.fetch import parse_uri
    from octavo_engine.fetching.resolve import resolve

    report = resolve(parse_uri(arguments.uri), arguments.revision).report
    write_termination_log(json.dumps(report).encode())
    print(json.dumps(report, indent=2))
