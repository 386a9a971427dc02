"""The digest of a commit's files, from the hub's listing: bounded, and refused when a file is missing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.model_files import ModelFile, manifest_digest
from octavo_operator.decide.target import Refusal
from octavo_operator.shell.hub import BadAnswer, Hub
from octavo_operator.shell.hub_manifest import Manifest, Manifests, parse_page
from tests.support.model_hub import HubStore, ModelHub, Weather
from tests.support.model_hub.store import git_blob_sha1

REPO = "organization/model"
FILES: dict[str, Path | bytes] = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "README.md": b"# A model",
    "original/weights.safetensors": b"elsewhere",
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[HubStore, ModelHub]]:
    store = HubStore(tmp_path)
    with ModelHub(store, page_size=2) as server:
        yield store, server


def read(server: ModelHub, commit: str) -> Manifest | Refusal:
    async def run() -> Manifest | Refusal:
        hub = Hub(server.endpoint)
        try:
            return await Manifests(hub).read(REPO, commit)
        finally:
            await hub.close()

    return asyncio.run(run())


def test_digest_is_that_of_the_needed_files_alone(served: tuple[HubStore, ModelHub]) -> None:
    store, server = served
    commit = store.add_commit(REPO, FILES, message="first")
    wanted = [
        ModelFile(path="config.json", size=2, digest=f"git-sha1:{git_blob_sha1(b'{}')}"),
        ModelFile(
            path="model.safetensors", size=7, digest=f"sha256:{hashlib.sha256(b'weights').hexdigest()}"
        ),
    ]
    assert read(server, commit) == Manifest(digest=manifest_digest(wanted), size_bytes=9)
    more = {**FILES, "README.md": b"# Another text"}
    assert read(server, store.add_commit(REPO, more, message="second")) == read(server, commit)
    changed = {**FILES, "model.safetensors": b"WEIGHTS"}
    assert read(server, store.add_commit(REPO, changed, message="third")) != read(server, commit)


def test_index_says_which_shards_are_needed(served: tuple[HubStore, ModelHub]) -> None:
    store, server = served
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files: dict[str, Path | bytes] = {
        "config.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-1.safetensors": b"1",
        "model-2.safetensors": b"22",
        "consolidated.safetensors": b"122",
    }
    manifest = read(server, store.add_commit(REPO, files, message="sharded"))
    assert isinstance(manifest, Manifest)
    assert manifest.size_bytes == 2 + len(json.dumps(index)) + 3
    del files["model-2.safetensors"]
    refusal = read(server, store.add_commit(REPO, files, message="a shard is missing"))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.lasting, refusal.at_hub) == ("FileMissing", True, True)
    assert "model-2.safetensors" in refusal.message


def test_outage_says_nothing_of_the_files(served: tuple[HubStore, ModelHub]) -> None:
    store, server = served
    commit = store.add_commit(REPO, FILES, message="first")
    store.set_weather(Weather(outage=True))
    refusal = read(server, commit)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.lasting, refusal.at_hub) == ("HubUnavailable", False, True)


@pytest.mark.parametrize(
    "text",
    [
        "<html>",
        "{}5",
        '{"type": "file"}',
        "[5]",
        '[{"type": "file"}]',
        '[{"type": "file", "path": 5, "size": 1, "oid": "a"}]',
        '[{"type": "file", "path": "a", "size": -1, "oid": "a"}]',
        '[{"type": "file", "path": "a", "size": "1", "oid": "a"}]',
        '[{"type": "file", "path": "a", "size": 1, "oid": "a", "lfs": 5}]',
        "[" * 100_000,
    ],
)
def test_listing_that_is_none_is_a_bad_answer(text: str) -> None:
    with pytest.raises(BadAnswer):
        parse_page(text)


def test_folders_are_no_files() -> None:
    assert parse_page('[{"type": "directory", "path": "a", "oid": "b", "size": 0}]') == []


def test_listing_without_end_is_given_up(
    served: tuple[HubStore, ModelHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, server = served
    commit = store.add_commit(REPO, {**FILES, "a": b"", "b": b"", "c": b""}, message="first")
    monkeypatch.setattr("octavo_operator.shell.hub_manifest.MAX_PAGES", 2)
    refusal = read(server, commit)
    assert isinstance(refusal, Refusal)
    assert "more than 2 pages" in refusal.message
