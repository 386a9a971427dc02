"""Flags of the commands that bring or read a model's files from where its URI says they are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract

URI_FORMS: Final = "hf://ORG/NAME | pvc://CLAIM/PATH | oci://IMAGE"


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """How to get at the files, and whom to tell how far it is."""
    parser.add_argument(
        contract.FLAG_TOKEN_FILE,
        type=Path,
        metavar="FILE",
        help="that holds the hub's token (default: HF_TOKEN of the environment)",
    )
    parser.add_argument(
        contract.FLAG_SOURCE,
        type=Path,
        metavar="DIR",
        help="where the claim of a pvc:// model or the image of an oci:// one is mounted",
    )
    parser.add_argument(
        contract.FLAG_PROGRESS_PORT,
        type=int,
        metavar="PORT",
        help=f"serve GET {contract.FETCH_PROGRESS_PATH} on it meanwhile",
    )


def add_fetch_flags(parser: argparse.ArgumentParser) -> None:
    """What a fetch checks."""
    add_source_flags(parser)
    parser.add_argument(
        contract.FLAG_MANIFEST_DIGEST,
        default="",
        metavar="sha256:…",
        help="refuse other files than those that `resolve` saw",
    )
    parser.add_argument(
        contract.FLAG_VERIFY,
        action="store_true",
        help="read every byte of files that are there; else only of those that were written to since",
    )


def fetch_from_flags(arguments: argparse.Namespace, folder: Path) -> None:
    """Bring the folder to the commit that the flags name."""
    from octavo_engine.fetching.order import parse_order

    order = parse_order(
        arguments.uri,
        arguments.revision,
        folder,
        mount=arguments.source,
        manifest_digest=arguments.manifest_digest,
        thorough=arguments.verify,
    )
    from octavo_engine.fetching.bring import bring

    bring(order, token_file=arguments.token_file, progress_port=arguments.progress_port)
