"""Fetches as the command does, from the hub of a test into a folder of the test."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.fetch import fetch
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.manifest import Manifest
from octavo_engine.fetching.order import FetchOrder, parse_order
from octavo_engine.fetching.patience import Patience
from octavo_engine.fetching.progress import Progress
from tests.support.model_hub import ModelHub

REPO = "org/model"
WEIGHTS = b"weights" * 100_000
FILES: dict[str, bytes | Path] = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": "\xc3\xa9"}',
    "chat_template.jinja": b"{{ messages }}",
    "merges.txt": b"a b",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle" * 1000,
    "README.md": b"# Model",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
}
WANTED = {"config.json", "tokenizer.json", "chat_template.jinja", "merges.txt", "model.safetensors"}
QUICK = Patience(first_seconds=0.01, most_seconds=0.02, limit_seconds=0.02)


@dataclass
class Fetcher:
    """Fetches one commit of a repository."""

    server: ModelHub
    folder: Path
    patience: Patience = QUICK
    token_file: Path | None = None
    troubles: list[str] = field(default_factory=list)

    def order(self, commit: str, repository: str = REPO, **options: Any) -> FetchOrder:
        return parse_order(f"hf://{repository}", commit, self.folder, **options)

    def hub(self, repository: str = REPO) -> Hub:
        return Hub(
            repository,
            endpoint=self.server.endpoint,
            patience=self.patience,
            token_file=self.token_file,
            tell_trouble=self.troubles.append,
        )

    def __call__(self, commit: str, repository: str = REPO, **options: Any) -> Manifest:
        order = self.order(commit, repository, **options)
        return fetch(order, self.hub(repository), Progress(io.StringIO()))

    def refused(self, commit: str, repository: str = REPO, **options: Any) -> FetchFailed:
        with pytest.raises(FetchFailed) as caught:
            self(commit, repository, **options)
        assert not (self.folder / contract.VERIFIED_FILE).exists()
        return caught.value


def start_fetch(
    server: ModelHub, folder: Path, commit: str, *more: str, **environment: str
) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    code = "import sys; from octavo_engine.cli import main; sys.exit(main())"
    order = ("fetch", "--uri", f"hf://{REPO}", "--revision", commit, "--to", str(folder))
    return subprocess.Popen(
        [sys.executable, "-c", code, *order, *more],
        env={**os.environ, "HF_ENDPOINT": server.endpoint, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
