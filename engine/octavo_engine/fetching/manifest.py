"""The record beside a model's files: where they come from, and that each was verified.

`MANIFEST_FILE` lists the files with size and digest; `VERIFIED_FILE` is written last and holds the
manifest's own digest. So a folder with a matching pair was fetched to the end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from octavo.engine_contract import MANIFEST_FILE, VERIFIED_FILE
from octavo.errors import OctavoError


class ManifestInvalid(OctavoError):
    """The record beside the files contradicts itself, the files or what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file. `digest` is `sha256:…` for a large file, `git-sha1:…` (a git blob's) for a plain one."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Files of one commit of one repository."""

    repository: str
    commit: str
    files: tuple[ManifestEntry, ...]

    def to_bytes(self) -> bytes:
        """The file's contents; the same files give the same bytes."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"

    @property
    def digest(self) -> str:
        """Of the file's contents."""
        return f"sha256:{hashlib.sha256(self.to_bytes()).hexdigest()}"


def build_manifest(repository: str, commit: str, entries: Sequence[ManifestEntry]) -> Manifest:
    """A manifest with its files in order of path."""
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    return Manifest(repository=repository, commit=commit, files=ordered)


def write_verified(folder: Path, manifest: Manifest) -> None:
    """Record that all files are there and verified; each record appears whole or not at all."""
    _write_whole(folder / MANIFEST_FILE, manifest.to_bytes())
    _write_whole(folder / VERIFIED_FILE, manifest.digest.encode() + b"\n")


def _write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_verified(folder: Path) -> Manifest | None:
    """The manifest of a folder that was fetched to the end, or None if there is no such record.

    Raises ManifestInvalid if the record is there but does not hold.
    """
    verified, path = folder / VERIFIED_FILE, folder / MANIFEST_FILE
    if not verified.is_file():
        return None
    try:
        content, expected = path.read_bytes(), verified.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ManifestInvalid(f"{folder}: its record of verified files cannot be read: {error}") from error
    actual = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if actual != expected:
        raise ManifestInvalid(f"{path}: its digest is {actual}, {VERIFIED_FILE} says {expected}")
    return _parse(path, content)


def _parse(path: Path, content: bytes) -> Manifest:
    try:
        value = json.loads(content)
        files = tuple(ManifestEntry(**entry) for entry in value["files"])
        return Manifest(repository=value["repository"], commit=value["commit"], files=files)
    except (ValueError, KeyError, TypeError) as error:
        raise ManifestInvalid(f"{path}: is not a manifest: {error!r}") from error


def check_folder(folder: Path, revision: str) -> Manifest | None:
    """Check a folder before its model is served; None if it has no record.

    Raises ManifestInvalid if it holds another commit than `revision`, or a listed file is gone or has
    another size.
    """
    manifest = read_verified(folder)
    if manifest is None:
        return None
    if revision and manifest.commit != revision:
        raise ManifestInvalid(f"{folder}: holds commit {manifest.commit}, --revision asks for {revision}")
    for entry in manifest.files:
        path = folder / entry.path
        size = path.stat().st_size if path.is_file() else None
        if size != entry.size:
            found = "is missing" if size is None else f"has {size} bytes"
            raise ManifestInvalid(f"{path}: {found}, the manifest says {entry.size} bytes; fetch it again")
    return manifest
