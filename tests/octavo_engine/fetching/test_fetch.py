"""What a fetch leaves in a folder, what it takes from it, and what it makes of a folder that changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.model_files import ModelFile
from octavo_engine.fetching import space as space_module
from octavo_engine.fetching.download import INCOMING
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.folder_lock import LOCK_FILE
from octavo_engine.fetching.manifest import (
    ManifestInvalid,
    Record,
    build_manifest,
    check_folder,
    read_manifest,
    read_record,
    read_stamp,
    write_record,
)
from octavo_engine.fetching.order import parse_order
from tests.octavo_engine.fetching.fetcher import FILES, REPO, WANTED, WEIGHTS, Fetcher
from tests.support.model_hub import HubStore, Weather
from tests.support.model_hub.traffic import forget_requests, read_requests

INDEX = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
SHARDED: dict[str, bytes | Path] = {
    "config.json": b"{}",
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "model-1.safetensors": b"1",
    "model-2.safetensors": b"2",
    "consolidated.safetensors": b"12",
}


def files_asked_for(store: HubStore) -> list[str]:
    return [request.path.rpartition("/")[2] for request in read_requests(store) if request.file_revision]


def test_fetch_brings_the_needed_files_of_the_commit_and_records_them(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    store.add_commit(REPO, {**FILES, "config.json": b'{"moved": 1}'}, message="two")
    manifest = fetcher(first)
    assert {file.path for file in manifest.files} == WANTED
    assert (fetcher.folder / "config.json").read_bytes() == b"{}"
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert check_folder(fetcher.folder, first) == manifest
    left = {path.name for path in fetcher.folder.iterdir()}
    assert left == WANTED | {contract.MANIFEST_FILE, contract.VERIFIED_FILE, LOCK_FILE}
    digests = {file.path: file.digest.partition(":")[0] for file in manifest.files}
    assert digests["model.safetensors"] == "sha256"
    assert digests["config.json"] == "git-sha1"


def test_every_file_is_of_the_commit_when_the_branch_moves_during_the_fetch(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(delay_seconds=0.1, bytes_per_second=2_000_000))
    moved = dict.fromkeys(FILES, b"moved")
    mover = threading.Timer(0.25, store.add_commit, [REPO, moved], {"message": "two"})
    mover.start()
    fetcher(first)
    mover.join()
    assert store.refs(REPO, "heads")["main"] != first
    asked = {request.file_revision for request in read_requests(store)}
    assert asked == {None, first}  # None: the list of files, asked for by commit too
    for path in WANTED:
        assert (fetcher.folder / path).read_bytes() == FILES[path]


def test_fetch_again_asks_the_hub_for_nothing_when_no_file_was_written_to(
    store: HubStore, fetcher: Fetcher
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    manifest = fetcher(commit)
    store.set_weather(Weather(outage=True))
    assert fetcher(commit) == manifest


def test_cached_commit_is_served_when_the_hub_has_forgotten_it(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    manifest = fetcher(commit)
    shutil.rmtree(store.root / "repos")
    store.add_commit(REPO, {"config.json": b"{}", "model.safetensors": b"rewritten"}, message="other")
    assert fetcher(commit) == manifest
    fetcher.folder = fetcher.folder.parent / "empty"
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_REVISION_NOT_FOUND
    assert commit in str(failure)


def test_folder_of_another_commit_is_refused_because_somebody_may_serve_it(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    second = store.add_commit(REPO, {**FILES, "config.json": b'{"moved": 1}'}, message="two")
    fetcher(first)
    with pytest.raises(InvalidSpec, match=first):
        fetcher(second)
    assert (fetcher.folder / "config.json").read_bytes() == b"{}"
    check_folder(fetcher.folder, first)


def test_two_commits_lie_beside_each_other(store: HubStore, fetcher: Fetcher) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    second = store.add_commit(REPO, {**FILES, "model.safetensors": b"new"}, message="two")
    cache = fetcher.folder.parent
    for commit in (first, second, first):
        fetcher.folder = cache / commit
        fetcher(commit)
    assert (cache / first / "model.safetensors").read_bytes() == WEIGHTS
    assert (cache / second / "model.safetensors").read_bytes() == b"new"


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


@pytest.mark.parametrize("garbage", [b"garbage", b"x" * (len(WEIGHTS) + 5), b"x" * len(WEIGHTS)])
def test_fetch_starts_a_file_again_when_its_first_part_was_wrong(
    store: HubStore, fetcher: Fetcher, garbage: bytes
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    stored = store.resolve(REPO, commit).file("model.safetensors")
    assert stored is not None
    (fetcher.folder / INCOMING).mkdir(parents=True)
    (fetcher.folder / INCOMING / stored.sha256).write_bytes(garbage)
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_part_that_is_a_link_is_not_written_through(
    store: HubStore, fetcher: Fetcher, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    stored = store.resolve(REPO, commit).file("model.safetensors")
    assert stored is not None
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (fetcher.folder / INCOMING).mkdir(parents=True)
    (fetcher.folder / INCOMING / stored.sha256).symlink_to(victim)
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not (fetcher.folder / "model.safetensors").is_symlink()
    assert victim.read_bytes() == b"precious"


def test_fetch_follows_the_index_to_its_shards(store: HubStore, fetcher: Fetcher) -> None:
    manifest = fetcher(store.add_commit(REPO, SHARDED, message="one"))
    assert {file.path for file in manifest.files} == set(SHARDED) - {"consolidated.safetensors"}


def test_fetch_refuses_an_index_whose_shard_is_not_there(store: HubStore, fetcher: Fetcher) -> None:
    files = {path: content for path, content in SHARDED.items() if path != "model-2.safetensors"}
    failure = fetcher.refused(store.add_commit(REPO, files, message="one"))
    assert failure.reason == contract.REASON_FILE_MISSING
    assert "model-2.safetensors" in str(failure)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_fetch_refuses_a_repository_that_is_no_model(store: HubStore, fetcher: Fetcher, missing: str) -> None:
    files = {path: content for path, content in FILES.items() if path != missing}
    failure = fetcher.refused(store.add_commit(REPO, files, message="one"))
    assert failure.reason == contract.REASON_FILE_MISSING


def test_fetch_refuses_files_that_are_not_those_that_were_resolved(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    failure = fetcher.refused(commit, manifest_digest=f"sha256:{'0' * 64}")
    assert failure.reason == contract.REASON_DIGEST_MISMATCH
    manifest = fetcher(commit)
    assert fetcher(commit, manifest_digest=manifest.digest) == manifest


# A folder that changed ---------------------------------------------------------------------------
def test_folder_without_record_is_served_unchecked(tmp_path: Path) -> None:
    assert check_folder(tmp_path, "0" * 40) is None


@pytest.mark.parametrize("damage", ["manifest", "verified", "size", "gone"])
def test_folder_that_changed_after_the_fetch_is_refused_and_repaired(
    store: HubStore, fetcher: Fetcher, damage: str
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    config = fetcher.folder / "config.json"
    if damage == "manifest":
        (fetcher.folder / contract.MANIFEST_FILE).write_text("{}")
    elif damage == "verified":
        (fetcher.folder / contract.VERIFIED_FILE).write_text("sha256:12")
    elif damage == "size":
        config.write_bytes(b"{ }")
    else:
        config.unlink()
    with pytest.raises(ManifestInvalid):
        check_folder(fetcher.folder, commit)
    fetcher(commit)
    assert read_record(fetcher.folder) is not None
    assert config.read_bytes() == b"{}"
    check_folder(fetcher.folder, commit)


def test_damaged_file_is_fetched_again_and_no_other_when_its_time_changed(
    store: HubStore, fetcher: Fetcher, caplog: pytest.LogCaptureFixture
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    forget_requests(store)
    weights = fetcher.folder / "model.safetensors"
    weights.write_bytes(b"W" + WEIGHTS[1:])
    fetcher(commit)
    assert weights.read_bytes() == WEIGHTS
    assert files_asked_for(store) == ["model.safetensors"]
    assert "damaged since it was verified, so fetched again: model.safetensors" in caplog.text


def test_file_that_was_only_touched_is_read_and_not_fetched(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    os.utime(fetcher.folder / "model.safetensors", (1, 1))
    store.set_weather(Weather(outage=True))
    fetcher(commit)
    record = read_record(fetcher.folder)
    assert record is not None
    assert record.stamps["model.safetensors"].mtime_ns == 10**9


def test_damage_that_left_size_and_time_is_found_only_by_a_thorough_fetch(
    store: HubStore, fetcher: Fetcher
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    weights = fetcher.folder / "model.safetensors"
    before = weights.stat()
    weights.write_bytes(b"W" + WEIGHTS[1:])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    fetcher(commit)
    assert weights.read_bytes() != WEIGHTS
    fetcher(commit, thorough=True)
    assert weights.read_bytes() == WEIGHTS


def test_folder_is_not_whole_while_a_damaged_file_cannot_be_had(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    (fetcher.folder / "config.json").write_bytes(b"xx")
    store.set_weather(Weather(outage=True))
    assert fetcher.refused(commit).reason == contract.REASON_HUB_UNAVAILABLE
    store.set_weather(Weather())
    fetcher(commit)
    assert (fetcher.folder / "config.json").read_bytes() == b"{}"


# Files that nobody verified -----------------------------------------------------------------------
@pytest.mark.parametrize("name", ["chat_template.json", "extra.safetensors", "model.gguf"])
def test_file_that_was_added_to_a_whole_folder_is_taken_away(
    store: HubStore, fetcher: Fetcher, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody with a right to write to a shared cache could change what is served by it."""
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    (fetcher.folder / name).write_text("{}")
    (fetcher.folder / "notes.md").write_text("mine")
    forget_requests(store)
    fetcher(commit)
    assert not (fetcher.folder / name).exists()
    assert (fetcher.folder / "notes.md").exists()
    assert files_asked_for(store) == []
    assert f"not of this commit, so removed: {name}" in caplog.text


def test_index_of_an_interrupted_fetch_of_another_commit_is_taken_away(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, SHARDED, message="one")
    second = store.add_commit(REPO, FILES, message="two")
    fetcher(first)
    (fetcher.folder / contract.VERIFIED_FILE).unlink()
    fetcher(second)
    left = {path.name for path in fetcher.folder.iterdir() if not path.name.startswith(".")}
    assert left == WANTED


def test_folder_with_files_of_somebody_elses_is_refused_and_left_alone(
    store: HubStore, fetcher: Fetcher
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher.folder.mkdir(parents=True)
    (fetcher.folder / "requirements.txt").write_text("mine")
    with pytest.raises(InvalidSpec, match=r"requirements\.txt"):
        fetcher(commit)
    assert {path.name for path in fetcher.folder.iterdir()} == {"requirements.txt", LOCK_FILE}


# Room and arguments ------------------------------------------------------------------------------
def test_full_disk_is_told_before_the_first_byte_with_need_and_have(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store.add_commit(REPO, FILES, message="one")
    fetcher(other)
    commit = store.add_commit(REPO, {**FILES, "config.json": b"{ }"}, message="two")
    fetcher.folder = fetcher.folder.parent / "two"
    usage = shutil.disk_usage(store.root)._replace(free=1024)
    monkeypatch.setattr(space_module.shutil, "disk_usage", lambda path: usage)
    forget_requests(store)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_DISK_FULL
    assert "683.6 KiB are still to fetch and 1.0 KiB are free" in str(failure)
    assert "one (683.6 KiB)" in str(failure)
    assert files_asked_for(store) == []


def test_folder_that_cannot_be_written_is_told(store: HubStore, fetcher: Fetcher, tmp_path: Path) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    (tmp_path / "file").touch()
    fetcher.folder = tmp_path / "file" / "model"
    with pytest.raises(FetchFailed, match="--to") as caught:
        fetcher(commit)
    assert caught.value.reason == contract.REASON_NOT_WRITABLE


@pytest.mark.parametrize(
    ("uri", "revision", "options", "word"),
    [
        pytest.param("hf://org/model", "main", {}, "branch", id="branch"),
        pytest.param("hf://org/model", "abc123", {}, "40 hex", id="short commit"),
        pytest.param("https://org/model", "0" * 40, {}, "hf://", id="other scheme"),
        pytest.param("hf://a/b/c", "0" * 40, {}, "organization", id="no repository"),
        pytest.param("hf://org/model", "0" * 40, {"mount": Path("/x")}, "--source", id="hub with a mount"),
        pytest.param("pvc://claim", f"sha256:{'0' * 64}", {}, "--source", id="volume without a mount"),
        pytest.param("pvc://claim", "main", {"mount": Path("/x")}, "sha256", id="volume with a branch"),
        pytest.param(
            *("hf://org/model", "0" * 40, {"manifest_digest": "md5"}, "--manifest-digest"), id="digest"
        ),
    ],
)
def test_order_refuses_what_may_move_or_names_nothing(
    tmp_path: Path, uri: str, revision: str, options: dict[str, Path], word: str
) -> None:
    with pytest.raises(InvalidSpec, match=word):
        parse_order(uri, revision, tmp_path, **options)


# A record that others can write to ---------------------------------------------------------------
def forge_record(folder: Path, **changed: object) -> None:
    """As somebody would who may write to a shared volume."""
    manifest = json.loads((folder / contract.MANIFEST_FILE).read_bytes())
    manifest["files"][0] |= changed
    content = json.dumps(manifest).encode()
    verified = json.loads((folder / contract.VERIFIED_FILE).read_bytes())
    verified["manifest"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (folder / contract.MANIFEST_FILE).write_bytes(content)
    (folder / contract.VERIFIED_FILE).write_text(json.dumps(verified))


@pytest.mark.parametrize("path", ["../precious", "/etc/precious", ".", "..", "a/b", "", ".verified", "a\0"])
def test_record_never_leads_out_of_its_folder(store: HubStore, fetcher: Fetcher, path: str) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher(commit)
    precious = fetcher.folder.parent / "precious"
    precious.write_bytes(b"precious")
    forge_record(fetcher.folder, path=path)
    with pytest.raises(ManifestInvalid):
        read_record(fetcher.folder)
    fetcher(commit)
    assert precious.read_bytes() == b"precious"
    assert read_record(fetcher.folder) is not None


def test_record_that_was_forged_is_found_by_the_pinned_digest(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    pinned = fetcher(commit).digest
    evil = b"evil weights"
    (fetcher.folder / "model.safetensors").write_bytes(evil)
    manifest = json.loads((fetcher.folder / contract.MANIFEST_FILE).read_bytes())
    assert manifest["files"][3]["path"] == "model.safetensors"
    stamps = {name: read_stamp(fetcher.folder / name) for name in WANTED}
    forged = [
        ModelFile(**file)
        if file["path"] != "model.safetensors"
        else ModelFile(path=file["path"], size=len(evil), digest=f"sha256:{hashlib.sha256(evil).hexdigest()}")
        for file in manifest["files"]
    ]
    whole = build_manifest(REPO, commit, forged)
    write_record(fetcher.folder, Record(manifest=whole, stamps={n: s for n, s in stamps.items() if s}))
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == evil
    assert fetcher(commit, manifest_digest=pinned).digest == pinned
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["files", "commit", "stamps"]), inner)
        ),
        max_leaves=8,
    )
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_a_record_or_is_refused(tmp_path: Path, value: object) -> None:
    content = json.dumps(value).encode()
    (tmp_path / contract.MANIFEST_FILE).write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (tmp_path / contract.VERIFIED_FILE).write_text(json.dumps({"manifest": digest, "stamps": value}))
    with pytest.raises(ManifestInvalid):
        read_record(tmp_path)
    assert read_manifest(tmp_path) is None
