"""`octavo`: one command line, whose subcommands are found by entry points.

Each installed package offers commands in the group `octavo.commands`: the name is the subcommand, the
value a function that takes the remaining arguments and returns an exit status. Nothing is imported
but the command that is called, so that `octavo plan` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from typing import Final

from octavo.cli.exit_codes import BAD_INPUT, INTERRUPTED, OUTPUT_CLOSED
from octavo.errors import OctavoError

COMMAND_GROUP: Final = "octavo.commands"
EXTRAS: Final = {"numpy": "operator,simulate", "matplotlib": "operator,simulate,plot"}
"""What brings a package; `operator` brings all others."""


def installed_commands() -> dict[str, EntryPoint]:
    """Every command that the installed packages offer, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=COMMAND_GROUP), key=lambda e: e.name)}


def usage(commands: Sequence[str]) -> str:
    names = "\n".join(f"  octavo {name}" for name in commands)
    return f"usage: octavo COMMAND [OPTIONS]\n\ncommands:\n{names}\n\n`octavo COMMAND --help` explains one."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is the command's."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show █ shows ?
    try:
        status = run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush raises again
        return OUTPUT_CLOSED
    except KeyboardInterrupt:
        print(file=sys.stderr)  # what is printed next begins a line, though progress was shown on this one
        return INTERRUPTED
    return status


def run(argv: Sequence[str] | None) -> int:
    """Find the command and call it, or say how."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = installed_commands()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(list(commands)))
        return 0 if arguments else BAD_INPUT
    if arguments[0] == "--version":
        print(f"octavo {version('octavo')}")
        return 0
    name, *rest = arguments
    if name not in commands:
        print(f"octavo: no command {name!r}\n\n{usage(list(commands))}", file=sys.stderr)
        return BAD_INPUT
    try:
        command = commands[name].load()
    except ModuleNotFoundError as error:
        print(f"octavo {name}: {missing_part(error)}", file=sys.stderr)
        return BAD_INPUT
    try:
        status: int = command(rest)
    except OctavoError as error:
        print(f"octavo {name}: {error}", file=sys.stderr)
        return BAD_INPUT
    return status


def missing_part(error: ModuleNotFoundError) -> str:
    """`octavo plan` needs nothing besides Python; the simulator needs numpy, its plot matplotlib, the other
    commands a client.

    >>> missing_part(ModuleNotFoundError(name="numpy"))
    "Python package 'numpy' is not installed; pip install 'octavo[operator,simulate]'"
    """
    extras = EXTRAS.get(str(error.name), "operator")
    return f"Python package {error.name!r} is not installed; pip install 'octavo[{extras}]'"


if __name__ == "__main__":
    sys.exit(main())
