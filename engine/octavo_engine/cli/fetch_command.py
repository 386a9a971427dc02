"""`octavo-engine fetch`: the files of a model at one commit, verified, into a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract
from octavo_engine.cli.source_flags import URI_FORMS, add_fetch_flags, fetch_from_flags

NAME: Final = "fetch"
SUMMARY: Final = "Fetch a model's files at one commit and verify their digests (HF_ENDPOINT, HF_TOKEN)."


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The first three are needed: nothing is guessed about what is served."""
    parser.add_argument(contract.FLAG_FETCH_URI, required=True, metavar="URI", help=URI_FORMS)
    parser.add_argument(
        contract.FLAG_FETCH_REVISION,
        required=True,
        metavar="COMMIT",
        help="40 hex digits, or the manifest digest of a volume or an image; no branch or tag",
    )
    parser.add_argument(
        contract.FLAG_FETCH_TO, required=True, type=Path, metavar="DIR", help="made if it is not there"
    )
    add_fetch_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Fetch."""
    fetch_from_flags(arguments, arguments.to)
