"""`--help` of every command: answered at once, and no flag without a word."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from octavo_engine.cli.main import COMMANDS, build_parser, main


def flags_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if action.option_strings)


def parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = [
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(commands.choices)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^ +{command.NAME}\s+{command.SUMMARY[:20]}", said, re.MULTILINE), command.NAME


@pytest.mark.parametrize("name", [command.NAME for command in COMMANDS])
def test_help_of_a_command_explains_each_of_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for action in flags_of(parsers()[name]):
        assert action.option_strings[-1] in said
        assert action.help, f"{name} {action.option_strings[-1]} says nothing of itself"


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", "--model", "x", "--nonsense"], ["dance"]])
def test_wrong_command_line_is_usage_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: octavo-engine" in capsys.readouterr().err
