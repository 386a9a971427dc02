"""What all of these commands share: an expected error is one line and a number, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps

from octavo.errors import OctavoError
from octavo_operator.cli.cluster import ClusterUnavailable, NotFound
from octavo_operator.cli.exit_statuses import BAD_INPUT, NOT_FOUND, UNAVAILABLE

Command = Callable[[Sequence[str]], int]


def report_errors(name: str) -> Callable[[Command], Command]:
    """Errors of ours as `octavo NAME: what was wrong`, each kind with its own exit status."""

    def around(command: Command) -> Command:
        @wraps(command)
        def run(argv: Sequence[str]) -> int:
            try:
                return command(argv)
            except OctavoError as error:
                print(f"octavo {name}: {error}", file=sys.stderr)
                return status_of(error)

        return run

    return around


def status_of(error: OctavoError) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    return UNAVAILABLE if isinstance(error, ClusterUnavailable) else BAD_INPUT
