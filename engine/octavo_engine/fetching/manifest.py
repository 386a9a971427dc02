"""The record beside a model's files: where they come from, and that each was verified.

`MANIFEST_FILE` lists the files with size and digest. `VERIFIED_FILE` is written last: it holds the digest
of that list, and size and time of each file when it was verified, so that a later look can tell in no
time that nothing was written since. So a folder with a matching pair was fetched to the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from octavo.engine_contract import MANIFEST_FILE, VERIFIED_FILE
from octavo.errors import OctavoError
from octavo.model_files import ModelFile, is_read_by_engine, manifest_digest

RECORD_MODE: Final = 0o644
"""A cache may be read by pods of other users."""

PLAIN_NAME: Final = re.compile(r"[^./\0][^/\0]*")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")


class ManifestInvalid(OctavoError):
    """The record beside the files contradicts itself, the files or what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The needed files of a model at one commit."""

    origin: str
    """The repository's name, or the URI of a volume or an image."""
    commit: str
    files: tuple[ModelFile, ...]

    @property
    def digest(self) -> str:
        """Of the files."""
        return manifest_digest(self.files)

    @property
    def num_bytes(self) -> int:
        """Of the files together."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes when a file is written to."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A manifest, and what its files looked like when they were verified."""

    manifest: Manifest
    stamps: Mapping[str, FileStamp]


def build_manifest(origin: str, commit: str, files: Sequence[ModelFile]) -> Manifest:
    """A manifest with its files in order of path."""
    return Manifest(origin=origin, commit=commit, files=tuple(sorted(files, key=lambda file: file.path)))


def read_stamp(path: Path) -> FileStamp | None:
    """Of a file, or of what a link points to; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return FileStamp(found.st_size, found.st_mtime_ns)


def stamp_files(folder: Path, manifest: Manifest) -> Record:
    """The record of files that were just verified."""
    stamps = {file.path: read_stamp(folder / file.path) for file in manifest.files}
    return Record(manifest=manifest, stamps={path: stamp for path, stamp in stamps.items() if stamp})


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Say what will be here: others that wait for it can tell how much of it is."""
    _write_whole(folder / MANIFEST_FILE, _to_bytes(manifest))


def read_manifest(folder: Path) -> Manifest | None:
    """What is or will be here, if that was said."""
    path = folder / MANIFEST_FILE
    try:
        return _manifest_of(_parse(path, path.read_bytes()))
    except (OSError, ManifestInvalid, KeyError, TypeError, ValueError):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Record that all files are there and verified; each part appears whole or not at all."""
    content = _to_bytes(record.manifest)
    stamps = {path: [stamp.size, stamp.mtime_ns] for path, stamp in record.stamps.items()}
    verified = {"manifest": _sha256(content), "stamps": stamps}
    _write_whole(folder / MANIFEST_FILE, content)
    _write_whole(folder / VERIFIED_FILE, json.dumps(verified, indent=1, sort_keys=True).encode() + b"\n")


def _to_bytes(manifest: Manifest) -> bytes:
    return json.dumps(asdict(manifest), indent=1, sort_keys=True).encode() + b"\n"


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _write_whole(path: Path, content: bytes) -> None:
    """Under a name of its own first: two processes may write the same record at once."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), RECORD_MODE)
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def read_record(folder: Path) -> Record | None:
    """The record of a folder that was fetched to the end, or None if there is none.

    Raises ManifestInvalid if the record is there but does not hold.
    """
    verified, path = folder / VERIFIED_FILE, folder / MANIFEST_FILE
    try:
        if not verified.is_file():
            return None
        content, expected = path.read_bytes(), _parse(verified, verified.read_bytes())
    except OSError as error:
        raise ManifestInvalid(f"{folder}: its record of verified files cannot be read: {error}") from error
    if _sha256(content) != expected.get("manifest"):
        raise ManifestInvalid(f"{path}: is not the list of files that {VERIFIED_FILE} was written for")
    value = _parse(path, content)
    try:
        return Record(manifest=_manifest_of(value), stamps=_stamps_of(expected))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ManifestInvalid(f"{path}: is not a manifest: {error!r}") from error


def _parse(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestInvalid(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ManifestInvalid(f"{path}: is no JSON object")
    return value


def _manifest_of(value: Mapping[str, Any]) -> Manifest:
    files = tuple(_file_of(file) for file in value["files"])
    return Manifest(origin=value["origin"], commit=value["commit"], files=files)


def _file_of(value: Mapping[str, Any]) -> ModelFile:
    """What others can write to is not trusted with a path: it would be removed where it is damaged."""
    file = ModelFile(**value)
    if not PLAIN_NAME.fullmatch(file.path) or not DIGEST.fullmatch(file.digest) or type(file.size) is not int:
        raise ValueError(f"{value!r:.200} is no file of a model")
    return file


def _stamps_of(verified: Mapping[str, Any]) -> dict[str, FileStamp]:
    return {path: FileStamp(int(size), int(mtime)) for path, (size, mtime) in verified["stamps"].items()}


def forget_record(folder: Path) -> None:
    """Before anything is changed in the folder: from now on it is not whole."""
    (folder / VERIFIED_FILE).unlink(missing_ok=True)


def is_unchanged(folder: Path, record: Record) -> bool:
    """Whether no file was written to since it was verified, by its size and time, and none was added."""
    return not find_strays(folder, record.manifest) and all(
        read_stamp(folder / file.path) == record.stamps.get(file.path) is not None
        for file in record.manifest.files
    )


def find_strays(folder: Path, manifest: Manifest) -> list[str]:
    """Files that the engine would take for the model's, and that nobody verified."""
    listed = {file.path for file in manifest.files}
    names = {path.name for path in folder.iterdir()} - listed
    return sorted(name for name in names if is_read_by_engine(name))


def check_folder(folder: Path, revision: str) -> Manifest | None:
    """Check a folder before its model is served; None if it has no record.

    Raises ManifestInvalid if it holds another commit than `revision`, or a listed file is gone or has
    another size.
    """
    record = read_record(folder)
    if record is None:
        return None
    manifest = record.manifest
    if revision and manifest.commit != revision:
        raise ManifestInvalid(f"{folder}: holds commit {manifest.commit}, --revision asks for {revision}")
    for file in manifest.files:
        stamp = read_stamp(folder / file.path)
        if stamp is None or stamp.size != file.size:
            found = "is missing" if stamp is None else f"has {stamp.size} bytes"
            raise ManifestInvalid(
                f"{folder / file.path}: {found}, the manifest says {file.size} bytes; fetch it again"
            )
    return manifest
