"""What every file of the repository must keep to, checked on the files that git tracks."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500


def tracked(suffix: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", f"*{suffix}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def product_files() -> list[Path]:
    return [
        path for path in tracked(".py") if path.relative_to(ROOT).parts[0] in ("core", "operator", "engine")
    ]


def test_product_files_stay_short() -> None:
    long_files = {
        str(path.relative_to(ROOT)): lines
        for path in product_files()
        if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert not long_files


def test_product_functions_stay_short() -> None:
    long_functions = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in product_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long_functions, "\n".join(long_functions)


def test_every_product_module_says_why_it_exists() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in product_files()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def normal_name(requirement: str) -> str:
    """The distribution's name of a requirement or pin, written as the packaging rules normalize it."""
    return re.split(r"[<>=;\[ ]", requirement)[0].replace("_", "-").lower()


def test_every_dependency_is_pinned_by_the_constraints() -> None:
    """`make setup` installs what was tested; a dependency without a pin would float."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {normal_name(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = project["optional-dependencies"].values()
    wanted = {normal_name(requirement) for extra in extras for requirement in extra}
    assert wanted <= pinned, f"missing in constraints.txt: {sorted(wanted - pinned)}"


def test_core_needs_no_other_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
