"""Repositories, commits and blobs on disk, with switches for the faults that a real hub can have.

    STORE/blobs/<sha256>                            a file's bytes, once
    STORE/repos/<org>--<name>/commits/<commit>.json its files: path, size, digests
    STORE/repos/<org>--<name>/refs/{heads,tags}/…   the commit that a branch or tag points to
    STORE/repos/<org>--<name>/faults.json           hidden and corrupted paths, gated or not
    STORE/weather.json                              outage and delay of the whole hub

Nothing is kept in memory: a running server sees at once what another process writes. Each file is
replaced whole, so it never sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

REPOSITORY_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
LFS_SUFFIXES: Final = (".safetensors", ".bin", ".gguf", ".pt")
LFS_FROM_BYTES: Final = 10_000_000
"""The hub asks for LFS from 10 MB on, and for weights always."""

RefKind = Literal["heads", "tags"]


class UnknownRepository(LookupError):
    """No repository of this name in the store."""


class UnknownRevision(LookupError):
    """Neither a commit, nor a branch, nor a tag of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a commit, with both digests that a hub tells its clients."""

    path: str
    size: int
    sha256: str
    git_sha1: str
    """Of the content, or of the LFS pointer that git holds in its place."""
    lfs: bool

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_sha1

    @property
    def pointer(self) -> bytes:
        return lfs_pointer(self.sha256, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    sha: str
    parent: str | None
    message: str
    files: tuple[StoredFile, ...]

    def file(self, path: str) -> StoredFile | None:
        return next((file for file in self.files if file.path == path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What is wrong with one repository, on purpose."""

    hidden: frozenset[str] = frozenset()
    corrupt: frozenset[str] = frozenset()
    gated: bool = False
    token: str = ""
    """Opens a gated repository; empty: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What is wrong with the whole hub, on purpose."""

    outage: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: int | None = None
    file_status: int | None = None
    """Answered for every file, instead of the file."""
    drop_after_bytes: int | None = None
    """Of each file's answer; then the connection is cut."""
    ignore_ranges: bool = False
    """Send whole files, whatever part was asked for, as some proxies do."""
    redirect_to: str | None = None
    """Another hub's address, as storage that the hub hands its downloads to."""


@dataclass(frozen=True, slots=True)
class HubStore:
    """The store in `root`; methods that change it may be called while a server runs on it."""

    root: Path
    lfs_from_bytes: int = field(default=LFS_FROM_BYTES, kw_only=True)

    # Writing ------------------------------------------------------------------------------------
    def add_commit(
        self, repo: str, files: Mapping[str, Path | bytes], *, branch: str = "main", message: str
    ) -> str:
        """Commit exactly `files` on top of `branch`, which is made if it is new; return the commit."""
        stored = tuple(self._store_file(path, files[path]) for path in sorted(files))
        parent = self.refs(repo, "heads").get(branch) if self._repo(repo).is_dir() else None
        sha = commit_sha(parent, message, stored)
        commit = {"parent": parent, "message": message, "files": [asdict(file) for file in stored]}
        _write_json(self._repo(repo) / "commits" / f"{sha}.json", commit)
        self.set_branch(repo, branch, sha)
        return sha

    def set_branch(self, repo: str, branch: str, commit: str) -> None:
        self._set_ref(repo, "heads", branch, commit)

    def tag(self, repo: str, tag: str, commit: str) -> None:
        self._set_ref(repo, "tags", tag, commit)

    def hide(self, repo: str, path: str) -> None:
        """Go on listing `path`, and answer 404 when it is asked for."""
        faults = self.faults(repo)
        self._set_faults(repo, replace(faults, hidden=faults.hidden | {path}))

    def corrupt(self, repo: str, path: str) -> None:
        """Serve other bytes than the listed digest promises, of the listed length."""
        faults = self.faults(repo)
        self._set_faults(repo, replace(faults, corrupt=faults.corrupt | {path}))

    def gate(self, repo: str, *, token: str = "") -> None:
        """List the files, as a hub does, but hand them only to who has the token; to nobody without one."""
        self._set_faults(repo, replace(self.faults(repo), gated=True, token=token))

    def heal(self, repo: str) -> None:
        """Take all faults off `repo`."""
        self._set_faults(repo, Faults())

    def set_weather(self, weather: Weather) -> None:
        """Make the whole hub fail or be slow: `Weather()` is fair."""
        _write_json(self.root / "weather.json", asdict(weather))

    # Reading ------------------------------------------------------------------------------------
    def repositories(self) -> list[str]:
        return sorted(folder.name.replace("--", "/", 1) for folder in (self.root / "repos").glob("*--*"))

    def refs(self, repo: str, kind: RefKind) -> dict[str, str]:
        """Name to commit, of all branches (`heads`) or all tags."""
        folder = self._existing(repo) / "refs" / kind
        return {
            str(path.relative_to(folder)): path.read_text()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        }

    def resolve(self, repo: str, revision: str) -> Commit:
        """The commit of a branch, a tag or a full commit hash."""
        sha = self.refs(repo, "heads").get(revision) or self.refs(repo, "tags").get(revision) or revision
        path = self._existing(repo) / "commits" / f"{sha}.json"
        if not COMMIT.fullmatch(sha) or not path.is_file():
            raise UnknownRevision(f"{repo} has no revision {revision!r}")
        return _read_commit(sha, path)

    def history(self, repo: str, revision: str) -> Iterator[Commit]:
        """The commit of `revision` and its ancestors, newest first."""
        next_sha: str | None = revision
        while next_sha is not None:
            commit = self.resolve(repo, next_sha)
            yield commit
            next_sha = commit.parent

    def content(self, file: StoredFile) -> Path:
        return self.root / "blobs" / file.sha256

    def faults(self, repo: str) -> Faults:
        path = self._existing(repo) / "faults.json"
        if not path.is_file():
            return Faults()
        read = json.loads(path.read_text())
        return Faults(
            hidden=frozenset(read["hidden"]),
            corrupt=frozenset(read["corrupt"]),
            gated=read["gated"],
            token=read["token"],
        )

    def weather(self) -> Weather:
        path = self.root / "weather.json"
        return Weather(**json.loads(path.read_text())) if path.is_file() else Weather()

    # Places -------------------------------------------------------------------------------------
    def _repo(self, repo: str) -> Path:
        if not REPOSITORY_NAME.fullmatch(repo):
            raise UnknownRepository(f"repository {repo!r}: must be of the form organization/name")
        return self.root / "repos" / repo.replace("/", "--")

    def _existing(self, repo: str) -> Path:
        folder = self._repo(repo)
        if not folder.is_dir():
            raise UnknownRepository(f"no repository {repo!r} in {self.root}")
        return folder

    def _set_ref(self, repo: str, kind: RefKind, name: str, commit: str) -> None:
        self.resolve(repo, commit)  # a ref to nowhere is a mistake of the test
        _write_whole(self._existing(repo) / "refs" / kind / name, commit.encode())

    def _set_faults(self, repo: str, faults: Faults) -> None:
        written = asdict(faults) | {"hidden": sorted(faults.hidden), "corrupt": sorted(faults.corrupt)}
        _write_json(self._existing(repo) / "faults.json", written)

    def _store_file(self, path: str, source: Path | bytes) -> StoredFile:
        sha256, size = _digest(source)
        blob = self.root / "blobs" / sha256
        if not blob.is_file():
            _place_blob(source, blob)
        lfs = path.endswith(LFS_SUFFIXES) or size >= self.lfs_from_bytes
        in_git = lfs_pointer(sha256, size) if lfs else blob.read_bytes()
        return StoredFile(path=path, size=size, sha256=sha256, git_sha1=git_blob_sha1(in_git), lfs=lfs)


def git_blob_sha1(content: bytes) -> str:
    """What `git hash-object` prints.

    >>> git_blob_sha1(b"hello\\n")
    'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def commit_sha(parent: str | None, message: str, files: tuple[StoredFile, ...]) -> str:
    """40 hex digits that depend on the content, the message and the parent alone: no clock, no author."""
    content = json.dumps([parent, message, [(file.path, file.git_sha1) for file in files]])
    return hashlib.sha1(content.encode()).hexdigest()


def _digest(source: Path | bytes) -> tuple[str, int]:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), len(source)
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), source.stat().st_size


def _place_blob(source: Path | bytes, blob: Path) -> None:
    if isinstance(source, bytes):
        _write_whole(blob, source)
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    new = _beside(blob)
    try:
        os.link(source.resolve(), new)  # the weights are large, and nobody writes into either
    except OSError:  # another file system
        shutil.copyfile(source, new)
    new.replace(blob)


def _beside(path: Path) -> Path:
    """A free hidden name in the same folder, to be renamed to `path`."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as free:
        return Path(free.name)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _beside(path)
    new.write_bytes(content)
    new.replace(path)


def _write_json(path: Path, value: object) -> None:
    _write_whole(path, json.dumps(value, indent=1).encode())


def _read_commit(sha: str, path: Path) -> Commit:
    read = json.loads(path.read_text())
    files = tuple(StoredFile(**file) for file in read["files"])
    return Commit(sha=sha, parent=read["parent"], message=read["message"], files=files)
