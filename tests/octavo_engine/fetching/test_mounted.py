"""Models on mounted volumes and images: pinned by what their files hold, and linked only if they hold it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo.model_source import ImageSource, ModelSource, VolumeSource
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.links import link_files
from octavo_engine.fetching.manifest import Manifest, check_folder, read_record
from octavo_engine.fetching.mounted import read_mounted
from octavo_engine.fetching.order import parse_order
from octavo_engine.fetching.progress import Progress

WEIGHTS = b"weights" * 1000
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "README.md": b"# Model"}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors"}
NOBODY = 65534
URI = "pvc://models/team one/m"
SOURCE = VolumeSource(claim="models", path="team one/m")
IMAGE = ImageSource(reference="ghcr.io/org/model:v1")


def progress() -> Progress:
    return Progress(io.StringIO())


def digest_of(mount: Path, source: ModelSource = SOURCE) -> str:
    return read_mounted(source, mount, progress()).digest


def write(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    write(tmp_path / "source" / "team one" / "m")
    return tmp_path / "source"


class Linker:
    def __init__(self, mount: Path, folder: Path) -> None:
        self.mount, self.folder = mount, folder

    def __call__(self, commit: str, **options: Any) -> Manifest:
        order = parse_order(URI, commit, self.folder, mount=self.mount, **options)
        return link_files(order, self.mount, progress())

    def refused(self, commit: str, **options: Any) -> FetchFailed:
        with pytest.raises(FetchFailed) as caught:
            self(commit, **options)
        return caught.value


@pytest.fixture
def linker(mount: Path, tmp_path: Path) -> Linker:
    return Linker(mount, tmp_path / "models" / "one")


def test_commit_of_a_folder_is_one_digest_over_path_size_and_digest_of_each_needed_file(mount: Path) -> None:
    lines = b"".join(
        json.dumps([name, len(FILES[name]), f"sha256:{hashlib.sha256(FILES[name]).hexdigest()}"]).encode()
        + b"\n"
        for name in sorted(NEEDED)
    )
    assert digest_of(mount) == f"sha256:{hashlib.sha256(lines).hexdigest()}"


def test_commit_does_not_depend_on_place_time_or_files_that_are_not_needed(
    mount: Path, tmp_path: Path
) -> None:
    elsewhere = write(tmp_path / "other", {**FILES, "README.md": b"new", "notes.md": b""})
    os.utime(elsewhere / "config.json", (1, 1))
    assert digest_of(elsewhere, VolumeSource(claim="other", path="")) == digest_of(mount)
    write(elsewhere, {"config.json": b"{ }"})
    assert digest_of(elsewhere, VolumeSource(claim="other", path="")) != digest_of(mount)


def test_pinned_files_are_linked_and_recorded_and_the_volume_is_not_written(
    linker: Linker, mount: Path
) -> None:
    before = sorted(path.name for path in (mount / "team one" / "m").iterdir())
    manifest = linker(digest_of(mount))
    assert {file.path for file in manifest.files} == NEEDED
    assert (linker.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (linker.folder / "model.safetensors").readlink() == mount / "team one/m/model.safetensors"
    assert check_folder(linker.folder, manifest.commit) == manifest
    assert manifest.digest == manifest.commit
    assert sorted(path.name for path in (mount / "team one" / "m").iterdir()) == before


def test_changed_file_is_refused_by_its_name_when_a_record_is_there(linker: Linker, mount: Path) -> None:
    commit = digest_of(mount)
    linker(commit)
    (mount / "team one/m/model.safetensors").write_bytes(b"other" * 1000)
    failure = linker.refused(commit)
    assert failure.reason == contract.REASON_DIGEST_MISMATCH
    assert commit in str(failure)
    assert digest_of(mount) in str(failure)
    assert "changed since: model.safetensors" in str(failure)


def test_files_that_are_not_the_pinned_ones_leave_no_record(linker: Linker) -> None:
    assert linker.refused(f"sha256:{'0' * 64}").reason == contract.REASON_DIGEST_MISMATCH
    assert read_record(linker.folder) is None


def test_unchanged_files_are_not_read_again(linker: Linker, mount: Path, monkeypatch) -> None:
    commit = digest_of(mount)
    linker(commit)
    read: list[str] = []
    real = "octavo_engine.fetching.reading.file_digest"
    monkeypatch.setattr(real, lambda path, *rest: read.append(path.name))
    linker(commit)
    assert read == []


def test_only_the_touched_file_is_read_again(linker: Linker, mount: Path, monkeypatch) -> None:
    from octavo_engine.fetching import reading

    commit, read, real = digest_of(mount), [], reading.file_digest
    linker(commit)
    os.utime(mount / "team one/m/config.json", (1, 1))

    def noted(path: Path, *rest: Any) -> str:
        read.append(path.name)
        return real(path, *rest)

    monkeypatch.setattr(reading, "file_digest", noted)
    linker(commit)
    assert read == ["config.json"]
    linker(commit, thorough=True)
    assert sorted(read[1:]) == sorted(NEEDED)


def test_change_that_left_size_and_time_is_found_by_a_thorough_look(linker: Linker, mount: Path) -> None:
    commit = digest_of(mount)
    linker(commit)
    weights = mount / "team one/m/model.safetensors"
    before = weights.stat()
    weights.write_bytes(b"W" + WEIGHTS[1:])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    linker(commit)
    assert linker.refused(commit, thorough=True).reason == contract.REASON_DIGEST_MISMATCH


def test_file_that_was_added_to_the_links_is_taken_away(linker: Linker, mount: Path) -> None:
    commit = digest_of(mount)
    linker(commit)
    (linker.folder / "chat_template.jinja").write_text("evil")
    linker(commit)
    assert not (linker.folder / "chat_template.jinja").exists()
    assert (linker.folder / "config.json").is_symlink()


def test_file_that_is_written_to_while_it_is_read_is_no_answer(mount: Path, monkeypatch) -> None:
    from octavo_engine.fetching import reading

    real = reading.file_digest

    def grows(path: Path, *rest: Any) -> str:
        digest = real(path, *rest)
        if path.name == "model.safetensors":
            path.write_bytes(WEIGHTS + b"more")
        return digest

    monkeypatch.setattr(reading, "file_digest", grows)
    with pytest.raises(FetchFailed, match="being written to"):
        digest_of(mount)


# Where the files lie -----------------------------------------------------------------------------
def test_image_with_its_model_in_the_usual_folder_is_read_there(tmp_path: Path) -> None:
    write(tmp_path / "image" / "models")
    (tmp_path / "image" / "etc").mkdir()
    found = read_mounted(IMAGE, tmp_path / "image", progress())
    assert found.folder == tmp_path / "image" / "models"
    write(tmp_path / "image")
    assert read_mounted(IMAGE, tmp_path / "image", progress()).folder == tmp_path / "image"


def test_links_within_the_volume_are_followed(tmp_path: Path, mount: Path) -> None:
    """As in a hub's own cache."""
    blobs = write(tmp_path / "linked" / "blobs")
    snapshot = tmp_path / "linked" / "snapshots" / "one"
    snapshot.mkdir(parents=True)
    for name in FILES:
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    source = VolumeSource(claim="linked", path="snapshots/one")
    assert digest_of(tmp_path / "linked", source) == digest_of(mount)
    assert blobs.is_dir()


@pytest.mark.parametrize("what", ["config.json", "model.safetensors.index.json", "."])
def test_link_that_leads_out_of_the_volume_is_refused(tmp_path: Path, what: str) -> None:
    secret = write(tmp_path / "secret", {"token": b'{"weight_map": {"a": "model.safetensors"}}'})
    mount = tmp_path / "source"
    if what == ".":
        mount.mkdir()
        (mount / "team one").symlink_to(secret)
        source: ModelSource = VolumeSource(claim="models", path="team one")
    else:
        write(mount)
        (mount / what).unlink(missing_ok=True)
        (mount / what).symlink_to(secret / "token")
        source = VolumeSource(claim="models", path="")
    with pytest.raises(FetchFailed, match="leads out of the volume") as caught:
        read_mounted(source, mount, progress())
    assert caught.value.reason == contract.REASON_SOURCE_UNREADABLE


def test_folder_that_is_not_there_is_told(mount: Path) -> None:
    with pytest.raises(FetchFailed, match="no such folder") as caught:
        read_mounted(VolumeSource(claim="models", path="none"), mount, progress())
    assert caught.value.reason == contract.REASON_SOURCE_UNREADABLE


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_folder_that_is_no_model_is_told(mount: Path, missing: str) -> None:
    (mount / "team one/m" / missing).unlink()
    with pytest.raises(FetchFailed) as caught:
        read_mounted(SOURCE, mount, progress())
    assert caught.value.reason == contract.REASON_FILE_MISSING


def test_shard_that_is_not_there_is_told_by_its_name(mount: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    write(mount / "team one/m", {"model.safetensors.index.json": json.dumps(index).encode()})
    with pytest.raises(FetchFailed, match=r"model-2\.safetensors"):
        read_mounted(SOURCE, mount, progress())


def test_file_that_the_volume_does_not_hand_out_is_told(mount: Path, monkeypatch) -> None:
    """The tests may run as a user who may read everything, so the refusal is the file system's word only."""

    def refuses(path: Path, *rest: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("octavo_engine.fetching.reading.file_digest", refuses)
    with pytest.raises(FetchFailed, match="Permission denied") as caught:
        read_mounted(SOURCE, mount, progress())
    assert caught.value.reason == contract.REASON_SOURCE_UNREADABLE


@pytest.mark.parametrize("closed", ["", "team one", "team one/m", "team one/m/model.safetensors"])
def test_place_that_the_pods_user_may_not_enter_is_told(closed: str) -> None:
    """As another user, because the tests may run as one who may enter everything."""
    with tempfile.TemporaryDirectory() as name:  # the folders of pytest are closed to others
        mount = Path(name)
        mount.chmod(0o755)
        write(mount / "team one" / "m")
        with as_another_user():
            assert read_mounted(SOURCE, mount, progress()).files
        (mount / closed).chmod(0o000)
        with as_another_user(), pytest.raises(FetchFailed, match="Permission denied") as caught:
            read_mounted(SOURCE, mount, progress())
        (mount / closed).chmod(0o755)
    assert caught.value.reason == contract.REASON_SOURCE_UNREADABLE


@contextmanager
def as_another_user() -> Iterator[None]:
    """Where the tests run as the superuser."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_large_files_are_read_in_little_memory_with_progress(tmp_path: Path, monkeypatch) -> None:
    import tracemalloc

    monkeypatch.setattr("octavo_engine.fetching.parallel.TICK_SECONDS", 0.01)
    write(tmp_path, {"config.json": b"{}"})
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(600 << 20)
    shown = progress()
    seen: list[int] = []
    monkeypatch.setattr(shown, "show", lambda: seen.append(shown.measure().bytes_done))
    tracemalloc.start()
    try:
        read_mounted(VolumeSource(claim="models", path=""), tmp_path, shown)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert len(set(seen)) > 3
    assert shown.measure().bytes_done == shown.measure().bytes_total == (600 << 20) + 2
    assert shown.measure().files_done == 2
