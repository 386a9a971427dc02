"""The page on memory shows what the command prints, and its arithmetic is ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from octavo.cli.exit_codes import OK
from octavo.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "memory.md"


def block(opening: str, first: str) -> str:
    """The first fenced block that starts so."""
    pattern = rf"^```{opening}\n({re.escape(first)}.*?)^```"
    match = re.search(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(block("json", "{"))
    command, _, shown = block("", "$ octavo plan").partition("\n")
    assert main(command.removeprefix("$ octavo ").split()) == OK
    assert capsys.readouterr().out == shown


def test_arithmetic_of_the_page_adds_up() -> None:
    layer = 576 * 576 + 2 * (3 * 64) * 576 + 576 * 576 + 3 * 1536 * 576 + 2 * 576
    assert layer == 3_540_096
    weights = 2 * (30 * layer + 49_152 * 576 + 576)
    step = 512 * (4 * 576 + 3 * 1536) * 2 + 64 * 49_152 * 6 + 8192 * 384 * (2 + 2) + 8192 * 512 * 3
    assert (weights, step) == (269_030_016, 51_118_080)
    whole = weights + step + (372 << 20) + 4 * 512 * 368_640 + (64 << 20)
    assert round(whole / (1 << 20), 1) == 1461.3
    assert ((1462 << 20) - (whole - 4 * 512 * 368_640)) // 368_640 == 2049
    page = PAGE.read_text()
    for number in (
        "3,540,096",
        "134,515,008",
        "269,030,016",
        "23,040",
        "368,640",
        "51,118,080",
        "1461.3 MiB",
    ):
        assert number in page
