"""`octavo-engine fetch`: the files of a model at one commit, verified, into a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract

NAME: Final = "fetch"
SUMMARY: Final = "Fetch a model's files at one commit and verify their digests (HF_ENDPOINT, HF_TOKEN)."


def add_flags(parser: argparse.ArgumentParser) -> None:
    """All three are needed: nothing is guessed about what is served."""
    parser.add_argument(
        contract.FLAG_FETCH_URI, required=True, metavar="hf://ORG/NAME", help="the repository on the hub"
    )
    parser.add_argument(
        contract.FLAG_FETCH_REVISION, required=True, metavar="COMMIT", help="40 hex digits; no branch or tag"
    )
    parser.add_argument(
        contract.FLAG_FETCH_TO, required=True, type=Path, metavar="DIR", help="made if it is not there"
    )


def run(arguments: argparse.Namespace) -> None:
    """Fetch."""
    from octavo_engine.fetching.fetch import fetch, parse_order

    order = parse_order(arguments.uri, arguments.revision, arguments.to)
    from octavo_engine.fetching.hub import Hub

    fetch(order, Hub(order.repository, order.commit))
