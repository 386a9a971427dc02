"""`octavo-engine resolve`: what a branch or tag, or the files on a volume, mean now."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.model_report import encode_model_report
from octavo.model_source import HubSource, parse_model_uri
from octavo_engine.cli.source_flags import URI_FORMS, add_source_flags

if TYPE_CHECKING:
    from octavo_engine.fetching.resolve import Resolution

NAME: Final = "resolve"
SUMMARY: Final = (
    "Print commit, manifest digest, size and architecture of a model as JSON (HF_ENDPOINT, HF_TOKEN)."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Words in, numbers out."""
    parser.add_argument(contract.FLAG_FETCH_URI, required=True, metavar="URI", help=URI_FORMS)
    parser.add_argument(
        contract.FLAG_FETCH_REVISION,
        default="main",
        metavar="REVISION",
        help="branch, tag or commit (default: main); of a volume or an image a digest that it must have",
    )
    add_source_flags(parser)
    parser.add_argument(
        contract.FLAG_REPORT,
        type=Path,
        metavar="FILE",
        help="write the operator's report into it, such as a pod's termination message",
    )


def run(arguments: argparse.Namespace) -> None:
    """Resolve."""
    resolution = _resolve(arguments)
    report = encode_model_report(resolution.report)
    if arguments.report is not None:
        _write_report(arguments.report, report)
    print(json.dumps(resolution.facts, indent=2))


def _resolve(arguments: argparse.Namespace) -> Resolution:
    from octavo_engine.fetching.order import check_mount

    source = parse_model_uri(arguments.uri)
    check_mount(source, arguments.source)
    from octavo_engine.fetching.hub import Hub
    from octavo_engine.fetching.patience import Patience
    from octavo_engine.fetching.progress import Progress
    from octavo_engine.fetching.progress_server import progress_served
    from octavo_engine.fetching.resolve import resolve_at_hub, resolve_mounted

    if isinstance(source, HubSource):
        hub = Hub(source.repository, token_file=arguments.token_file, patience=Patience(limit_seconds=30.0))
        return resolve_at_hub(hub, arguments.revision)
    progress = Progress(sys.stderr)
    with progress_served(progress, arguments.progress_port):
        return resolve_mounted(source, arguments.uri, arguments.revision, arguments.source, progress)


def _write_report(path: Path, report: str) -> None:
    """In place: a termination message is a file that is mounted, which cannot be replaced."""
    try:
        path.write_text(report, encoding="ascii")
    except OSError as error:
        raise InvalidSpec(f"{contract.FLAG_REPORT} {path}: cannot be written: {error.strerror}") from error
