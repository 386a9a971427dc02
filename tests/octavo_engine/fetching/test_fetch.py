"""Fetching from a real hub server through its official client: exactly one commit's files, or a reason."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo_engine.fetching import fetch as fetch_module
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.fetch import INCOMING, FetchOrder, fetch, parse_order
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.manifest import Manifest, ManifestInvalid, check_folder, read_verified
from tests.support.model_hub import HubStore, ModelHub, Weather
from tests.support.model_hub.traffic import read_requests

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


class Fetcher:
    """Fetches one commit of a repository into a folder of the test."""

    def __init__(self, server: ModelHub, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def __call__(self, commit: str, repository: str = REPO) -> Manifest:
        hub = Hub(repository, commit, endpoint=self.server.endpoint, waits=(0.01,))
        return fetch(FetchOrder(repository=repository, commit=commit, folder=self.folder), hub)

    def refused(self, commit: str, repository: str = REPO) -> FetchFailed:
        with pytest.raises(FetchFailed) as caught:
            self(commit, repository)
        assert not (self.folder / contract.VERIFIED_FILE).exists()
        return caught.value


@pytest.fixture
def fetcher(hub_server: ModelHub, tmp_path: Path) -> Fetcher:
    return Fetcher(hub_server, tmp_path / "models")


def test_fetch_brings_the_needed_files_of_the_commit_and_records_them(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    store.add_commit(REPO, {**FILES, "config.json": b'{"moved": 1}'}, message="two")
    manifest = fetcher(first)
    assert {entry.path for entry in manifest.files} == WANTED
    assert (fetcher.folder / "config.json").read_bytes() == b"{}"
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert check_folder(fetcher.folder, first) == manifest
    left = {path.name for path in fetcher.folder.iterdir()}
    assert left == WANTED | {contract.MANIFEST_FILE, contract.VERIFIED_FILE}
    digests = {entry.path: entry.digest.partition(":")[0] for entry in manifest.files}
    assert digests["model.safetensors"] == "sha256"
    assert digests["config.json"] == "git-sha1"


def test_fetch_again_asks_the_hub_for_nothing(
    store: HubStore, fetcher: Fetcher, hub_server: ModelHub
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    manifest = fetcher(commit)
    store.set_weather(Weather(outage=True))
    assert fetcher(commit) == manifest


def test_fetch_replaces_another_commits_files(store: HubStore, fetcher: Fetcher) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    second = store.add_commit(REPO, {**FILES, "config.json": b'{"moved": 1}'}, message="two")
    fetcher(first)
    fetcher(second)
    assert (fetcher.folder / "config.json").read_bytes() == b'{"moved": 1}'
    with pytest.raises(ManifestInvalid, match=first):
        check_folder(fetcher.folder, first)


def test_fetch_goes_on_where_it_was_interrupted(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    stored = store.resolve(REPO, commit).file("model.safetensors")
    assert stored is not None
    (fetcher.folder / INCOMING).mkdir(parents=True)
    (fetcher.folder / INCOMING / stored.sha256).write_bytes(WEIGHTS[:500_000])
    (fetcher.folder / "config.json").write_bytes(b"{}")
    store.corrupt(REPO, "config.json")
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    ranges = [request.range for request in read_requests(store) if "model.safetensors" in request.path]
    assert ranges == ["bytes=500000-"]


def test_fetch_starts_a_file_again_when_its_first_part_was_wrong(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    stored = store.resolve(REPO, commit).file("model.safetensors")
    assert stored is not None
    (fetcher.folder / INCOMING).mkdir(parents=True)
    for garbage in (b"garbage", b"x" * (len(WEIGHTS) + 5)):
        shutil.rmtree(fetcher.folder)
        (fetcher.folder / INCOMING).mkdir(parents=True)
        (fetcher.folder / INCOMING / stored.sha256).write_bytes(garbage)
        fetcher(commit)
        assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_fetch_follows_the_index_to_its_shards(store: HubStore, fetcher: Fetcher) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    sharded: dict[str, bytes | Path] = {
        "config.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-1.safetensors": b"1",
        "model-2.safetensors": b"2",
        "consolidated.safetensors": b"12",
    }
    manifest = fetcher(store.add_commit(REPO, sharded, message="one"))
    assert {entry.path for entry in manifest.files} == set(sharded) - {"consolidated.safetensors"}
    del sharded["model-2.safetensors"]
    commit = store.add_commit(REPO, sharded, message="two")
    (fetcher.folder / contract.VERIFIED_FILE).unlink()
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_FILE_MISSING
    assert "model-2.safetensors" in str(failure)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_fetch_refuses_a_repository_that_is_no_model(store: HubStore, fetcher: Fetcher, missing: str) -> None:
    files = {path: content for path, content in FILES.items() if path != missing}
    failure = fetcher.refused(store.add_commit(REPO, files, message="one"))
    assert failure.reason == contract.REASON_FILE_MISSING


def test_fetch_tells_a_missing_repository_and_commit(store: HubStore, fetcher: Fetcher) -> None:
    store.add_commit(REPO, FILES, message="one")
    assert fetcher.refused("0" * 40, "org/none").reason == contract.REASON_REPO_NOT_FOUND
    failure = fetcher.refused("0" * 40)
    assert failure.reason == contract.REASON_REVISION_NOT_FOUND
    assert "0" * 40 in str(failure)


def test_fetch_tells_a_gated_repository(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.gate(REPO)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_GATED
    assert "HF_TOKEN" in str(failure)


def test_fetch_tells_a_listed_file_that_is_not_there(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.hide(REPO, "model.safetensors")
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_FILE_MISSING
    assert "model.safetensors" in str(failure)


@pytest.mark.parametrize("path", ["model.safetensors", "tokenizer.json"])
def test_fetch_tells_wrong_bytes_and_keeps_none(store: HubStore, fetcher: Fetcher, path: str) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.corrupt(REPO, path)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_DIGEST_MISMATCH
    assert path in str(failure)
    assert not (fetcher.folder / path).exists()
    store.heal(REPO)
    fetcher(commit)


def test_fetch_tells_an_outage_and_a_hub_that_is_not_there(
    store: HubStore, fetcher: Fetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = SimpleNamespace(sleep=lambda seconds: None, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr("huggingface_hub.utils._http.time", impatient)
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(outage=True))
    assert fetcher.refused(commit).reason == contract.REASON_HUB_UNAVAILABLE
    nowhere = Hub(REPO, commit, endpoint="http://127.0.0.1:9", waits=())
    with pytest.raises(FetchFailed) as caught:
        fetch(FetchOrder(repository=REPO, commit=commit, folder=tmp_path / "other"), nowhere)
    assert caught.value.reason == contract.REASON_HUB_UNAVAILABLE


def test_fetch_tells_a_full_disk_before_it_begins(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    usage = shutil.disk_usage(store.root)._replace(free=1024)
    monkeypatch.setattr(fetch_module.shutil, "disk_usage", lambda path: usage)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_DISK_FULL
    assert "1.0 KiB are free" in str(failure)


@pytest.mark.parametrize(
    ("uri", "revision", "word"),
    [
        pytest.param("hf://org/model", "main", "branch", id="branch"),
        pytest.param("hf://org/model", "abc123", "40 hex", id="short commit"),
        pytest.param("https://org/model", "0" * 40, "--uri", id="other scheme"),
        pytest.param("hf://model", "0" * 40, "--uri", id="no organization"),
    ],
)
def test_order_refuses_what_may_move_or_is_no_repository(
    tmp_path: Path, uri: str, revision: str, word: str
) -> None:
    with pytest.raises(InvalidSpec, match=word):
        parse_order(uri, revision, tmp_path)


def test_folder_without_record_is_served_unchecked(tmp_path: Path) -> None:
    assert check_folder(tmp_path, "0" * 40) is None


@pytest.mark.parametrize("damage", ["manifest", "size", "gone"])
def test_folder_that_changed_after_the_fetch_is_refused(
    store: HubStore, fetcher: Fetcher, damage: str
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    if damage == "manifest":
        (fetcher.folder / contract.MANIFEST_FILE).write_text("{}")
    elif damage == "size":
        (fetcher.folder / "config.json").write_bytes(b"{ }")
    else:
        (fetcher.folder / "config.json").unlink()
    with pytest.raises(ManifestInvalid):
        check_folder(fetcher.folder, commit)
    fetcher(commit)
    assert read_verified(fetcher.folder) is not None
    check_folder(fetcher.folder, commit)


def test_fetch_that_fails_does_not_wait_for_other_files(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {**FILES, "model.safetensors": b"w" * 8_000_000}
    commit = store.add_commit(REPO, large, message="one")
    store.hide(REPO, "config.json")
    store.set_weather(Weather(bytes_per_second=400_000))
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    started = time.monotonic()
    assert fetcher.refused(commit).reason == contract.REASON_FILE_MISSING
    assert time.monotonic() - started < 10
