"""Digests of files as hubs list them: SHA-256 of large files, git's blob SHA-1 of plain ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

SHA256: Final = "sha256"
GIT_SHA1: Final = "git-sha1"
CHUNK_BYTES: Final = 4 * 2**20
"""All that hashing a file keeps in memory, whatever its size."""

OnBytes = Callable[[int], None]


def ignore_bytes(_: int) -> None:
    """For who does not want to know how far a digest is."""


def file_digest(path: Path, kind: str, on_bytes: OnBytes = ignore_bytes) -> str:
    """`kind:hex` of a file, read in pieces, each of which is told of."""
    digest = hashlib.sha256() if kind == SHA256 else hashlib.sha1(usedforsecurity=False)
    if kind == GIT_SHA1:
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            on_bytes(len(chunk))
    return f"{kind}:{digest.hexdigest()}"


def matches(path: Path, *, size: int, digest: str) -> bool:
    """Whether a file is there with this size and digest; another process may take it away meanwhile."""
    try:
        return path.stat().st_size == size and file_digest(path, digest.partition(":")[0]) == digest
    except FileNotFoundError:
        return False
