"""Which command was asked for, and how its end is told: exit code, log line, termination message.

What takes long to import (torch, the HTTP server, the hub's client) is imported by the command that
needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

from octavo.engine_contract import REASON_INVALID_ARGUMENTS
from octavo.errors import InvalidSpec, OctavoError
from octavo_engine.cli import (
    explain_blocks_command,
    fetch_command,
    resolve_command,
    serve_command,
    warm_command,
)
from octavo_engine.cli.logs import set_up_logging
from octavo_engine.cli.termination import EXIT_CODES, EXIT_FAILED, write_termination_message

COMMANDS: Final = (serve_command, fetch_command, resolve_command, warm_command, explain_blocks_command)

logger = logging.getLogger("octavo_engine")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code tells what went wrong (`EXIT_CODES`)."""
    arguments = build_parser().parse_args(argv)
    set_up_logging(arguments.log_format)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        return 130
    except OctavoError as error:
        return _fail(_reason_of(error), str(error))
    except Exception as error:
        logger.exception("failed")
        return _fail("EngineFailed", f"{type(error).__name__}: {error}")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """All commands and flags."""
    parser = argparse.ArgumentParser(
        prog="octavo-engine",
        allow_abbrev=False,
        description="Serve a model, or what comes before: resolve, fetch, warm, explain paging.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.NAME, help=command.SUMMARY, description=command.SUMMARY, allow_abbrev=False
        )
        command.add_flags(subparser)
        subparser.add_argument(
            "--log-format",
            choices=("auto", "json", "text"),
            default="auto",
            help="auto: text on a terminal, else one JSON object per line",
        )
        subparser.set_defaults(run=command.run)
    return parser


def _exit_on_signal(number: int, _: FrameType | None) -> NoReturn:
    """As process 1 of a container a program without a handler would not hear SIGTERM at all."""
    sys.exit(128 + number)


def _reason_of(error: OctavoError) -> str:
    if isinstance(error, InvalidSpec):
        return REASON_INVALID_ARGUMENTS
    return str(getattr(error, "reason", type(error).__name__))


def _fail(reason: str, message: str) -> int:
    logger.error("%s", message, extra={"reason": reason})
    write_termination_message(reason, message)
    return EXIT_CODES.get(reason, EXIT_FAILED)
