"""The import rules of ARCHITECTURE.md, checked by walking every module's syntax tree."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"octavo": ROOT / "core", "octavo_operator": ROOT / "operator", "octavo_engine": ROOT / "engine"}
STDLIB = sys.stdlib_module_names
IMPURE_STDLIB = frozenset(
    {"time", "random", "secrets", "os", "socket", "subprocess", "threading", "asyncio", "urllib", "http"}
)


@dataclass(frozen=True)
class Layer:
    """A package prefix with what its modules may import besides the standard library and themselves."""

    prefix: str
    may_import: tuple[str, ...]
    pure: bool


LAYERS = (
    Layer("octavo.cli", ("octavo",), pure=False),
    Layer("octavo", ("octavo",), pure=True),
    Layer("octavo_operator.api", ("octavo", "pydantic", "yaml"), pure=True),
    Layer("octavo_operator.desired", ("octavo", "octavo_operator.api", "pydantic"), pure=True),
    Layer(
        "octavo_operator.decide",
        ("octavo", "octavo_operator.api", "octavo_operator.desired", "pydantic", "pydantic_core"),
        pure=True,
    ),
    Layer(
        "octavo_operator.simulation",
        ("octavo", "octavo_operator.api", "octavo_operator.decide", "numpy", "numba"),
        pure=True,
    ),
    Layer("octavo_engine.scheduling", ("octavo",), pure=True),
)
FORBIDDEN = {
    "octavo_operator": ("octavo_engine", "torch", "transformers"),
    "octavo_engine": ("octavo_operator", "kopf", "kubernetes"),
    "octavo_engine.kernels": ("fastapi", "uvicorn", "starlette"),
    "octavo_engine.models": ("fastapi", "uvicorn", "starlette"),
    "octavo_engine.execution": ("fastapi", "uvicorn", "starlette"),
    "octavo_engine.server": ("torch",),
}
CODE_GENERATORS = {"octavo_operator.api.generate"}
"""Programs inside a pure package that write files by design: run by `make generate`, never imported."""


def modules() -> Iterator[tuple[str, Path]]:
    for package, root in SOURCES.items():
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imported(path: Path, module: str) -> Iterator[str]:
    """Absolute names that a file imports; `from package import name` counts as `package.name`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer_of(module: str) -> Layer | None:
    return next((layer for layer in LAYERS if within(module, layer.prefix)), None)


def breaches(module: str, path: Path) -> Iterator[str]:
    layer = None if module in CODE_GENERATORS else layer_of(module)
    for name in imported(path, module):
        for prefix, banned in FORBIDDEN.items():
            if within(module, prefix) and any(within(name, ban) for ban in banned):
                yield f"{module} imports {name}: {prefix} never imports it"
        if layer is None or within(name, layer.prefix):
            continue
        top = name.split(".")[0]
        if top in STDLIB:
            if layer.pure and top in IMPURE_STDLIB:
                yield f"{module} imports {name}: {layer.prefix} is pure (no clock, randomness or I/O)"
        elif not any(within(name, allowed) for allowed in layer.may_import):
            yield f"{module} imports {name}: {layer.prefix} may import {', '.join(layer.may_import)}"


def test_every_module_keeps_the_import_rules() -> None:
    found = [line for module, path in modules() for line in breaches(module, path)]
    assert not found, "\n".join(found)


def test_operator_folder_holds_no_init_file() -> None:
    """It would shadow the standard library's `operator`; importing does not reveal that, the file does."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_no_test_folder_is_called_operator() -> None:
    assert not [path for path in (ROOT / "tests").rglob("operator") if path.is_dir()]


@pytest.mark.parametrize(
    ("module", "source", "breach"),
    [
        pytest.param("octavo.planning", "import torch", "may import", id="core stays without torch"),
        pytest.param("octavo.planning", "import time", "is pure", id="core has no clock"),
        pytest.param("octavo.planning", "from octavo.cli import main", "", id="own package is allowed"),
        pytest.param("octavo_engine.scheduling.scheduler", "import torch", "may import", id="pure scheduler"),
        pytest.param("octavo_operator.decide.rollout", "import kopf", "may import", id="pure decisions"),
        pytest.param("octavo_operator.simulation.run", "import time", "is pure", id="simulated time only"),
        pytest.param("octavo_operator.shell.scrape", "import octavo_engine", "never", id="no engine"),
        pytest.param("octavo_engine.server.routes", "import torch.nn", "never", id="no torch in routes"),
    ],
)
def test_layer_rules_catch_a_breach(tmp_path: Path, module: str, source: str, breach: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    found = " ".join(breaches(module, path))
    assert breach in found if breach else not found
