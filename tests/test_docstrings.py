"""The numbers in docstrings, which a reader can check, are checked."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("core/octavo", "operator/octavo_operator", "engine/octavo_engine", "benchmarks", "tests")
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)


def modules_with_examples() -> Iterator[str]:
    for source in SOURCES:
        root = (ROOT / source).parent
        for path in sorted((ROOT / source).rglob("*.py")):
            if EXAMPLE.search(path.read_text()):
                yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples_give_what_they_say(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.attempted
    assert not result.failed
