"""Digests of files as hubs list them: SHA-256 of large files, git's blob SHA-1 of plain ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

SHA256: Final = "sha256"
GIT_SHA1: Final = "git-sha1"
CHUNK_BYTES: Final = 4 * 2**20


def file_digest(path: Path, kind: str) -> str:
    """`kind:hex` of a file, read in pieces."""
    digest = hashlib.sha256() if kind == SHA256 else hashlib.sha1(usedforsecurity=False)
    if kind == GIT_SHA1:
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{kind}:{digest.hexdigest()}"


def matches(path: Path, *, size: int, digest: str) -> bool:
    """Whether a file is there with this size and digest."""
    if not path.is_file() or path.stat().st_size != size:
        return False
    return file_digest(path, digest.partition(":")[0]) == digest
