"""A model hub of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_hub import HubStore, ModelHub


@pytest.fixture
def store(tmp_path: Path) -> HubStore:
    return HubStore(tmp_path / "store")


@pytest.fixture
def hub_server(store: HubStore) -> Iterator[ModelHub]:
    with ModelHub(store) as server:
        yield server
