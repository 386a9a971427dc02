"""What the pages say is true as far as a program can tell: commands, YAML and links."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo.cli.main import COMMAND_GROUP
from octavo_operator.api import names
from octavo_operator.cli.service_file import refuse_slips
from octavo_operator.decide.world import parse_spec

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
PROGRAM = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(octavo|octavo-engine|kubectl octavo) (.+)$", re.MULTILINE)
END_OF_COMMAND = re.compile(r"\s+(?:#|\||>|&&).*$")
SHORTENED_DIGEST = re.compile(r"sha256:[0-9a-f]+…")
MODEL = {"uri": "hf://organization/model"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(*languages: str) -> list[Any]:
    return [
        pytest.param(found[2], id=f"{name_of(page)}:{page.read_text()[: found.start()].count(chr(10)) + 1}")
        for page in PAGES
        for found in FENCE.finditer(page.read_text())
        if found[1] in languages
    ]


# Commands -------------------------------------------------------------------------------------------------
def parser_of(program: str, words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    if program == "octavo-engine":
        build: Callable[[], argparse.ArgumentParser] = import_module("octavo_engine.cli.main").build_parser
        return build(), words
    (entry,) = entry_points(group=COMMAND_GROUP, name=words[0])
    return import_module(entry.module).build_parser(), words[1:]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for program, rest in PROGRAM.findall(text.replace("\\\n", " ")):
        yield program, shlex.split(END_OF_COMMAND.sub("", rest))


@pytest.mark.parametrize("text", blocks("", "sh", "console"))
def test_commands_of_a_page_are_taken(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for program, words in commands(text):
        parser, arguments = parser_of(program, words)
        try:
            parser.parse_args(arguments)
        except SystemExit as ended:
            assert ended.code == 0, f"{program} {words}: {capsys.readouterr().err}"


def test_pages_show_commands() -> None:
    """Or the test above would look at nothing."""
    texts = [block.values[0] for block in blocks("", "sh", "console")]
    shown = {(program, words[0]) for text in texts for program, words in commands(text)}
    assert {("octavo", "plan"), ("octavo", "simulate"), ("octavo-engine", "fetch")} <= shown


# YAML -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_of_a_page_is_taken(text: str) -> None:
    for document in yaml.safe_load_all(SHORTENED_DIGEST.sub("sha256:" + 64 * "0", text)):
        if is_service(document):
            spec = {"model": MODEL, **document["spec"]}
            body = {"spec": {**spec, "model": {**MODEL, **spec["model"]}}}
            refuse_slips(body)
            parse_spec(completed(body))


def is_service(document: object) -> bool:
    """Whole, or a fragment of its spec."""
    is_mapping = isinstance(document, Mapping) and "spec" in document
    return is_mapping and document.get("kind", names.KIND) == names.KIND  # type: ignore[attr-defined]


def completed(body: dict[str, Any]) -> dict[str, Any]:
    """Fragments leave out what must be there, to speak of the rest."""
    autoscaling = body["spec"].get("autoscaling")
    if autoscaling is not None:
        autoscaling.setdefault("maxReplicas", autoscaling.get("minReplicas", 1))
    return body


# Links ----------------------------------------------------------------------------------------------------
def anchors(page: Path) -> set[str]:
    """As GitHub makes them."""
    titles = (title.strip().lower() for title in HEADING.findall(FENCE.sub("", page.read_text())))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_what_is_there(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        place, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target
