"""A model hub of each test's own, and what fetches from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.octavo_engine.fetching.fetcher import Fetcher
from tests.support.model_hub import HubStore, ModelHub


@pytest.fixture
def store(tmp_path: Path) -> HubStore:
    return HubStore(tmp_path / "store")


@pytest.fixture
def hub_server(store: HubStore) -> Iterator[ModelHub]:
    with ModelHub(store) as server:
        yield server


@pytest.fixture
def fetcher(hub_server: ModelHub, tmp_path: Path) -> Fetcher:
    return Fetcher(hub_server, tmp_path / "models" / "one")


@pytest.fixture(autouse=True)
def impatient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client waits between attempts of its own, for longer than a test should take."""
    impatient = SimpleNamespace(sleep=lambda seconds: None, time=time.time, monotonic=time.monotonic)
    for module in ("huggingface_hub.utils._http", "huggingface_hub.file_download"):
        monkeypatch.setattr(f"{module}.time", impatient)
