"""Digests of many files at once, with progress, and in little memory however large they are."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial as bind
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract
from octavo_engine.fetching.digests import file_digest
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.parallel import run_all
from octavo_engine.fetching.progress import Progress, Tally

MAX_READERS: Final = 4
"""Each is as fast as one core hashes, about 1 GB/s; more than a volume gives is of no use."""


class _Stopped(Exception):
    """Another file could not be read."""


def read_digests(folder: Path, kinds: Mapping[str, str], progress: Progress) -> dict[str, str]:
    """The digest of each file, of the kind asked for; raises FetchFailed for what cannot be read."""
    tally = Tally(bytes_total=sum(_size(folder / path) for path in kinds), files_total=len(kinds))
    stopped = threading.Event()
    digests: dict[str, str] = {}

    def on_bytes(count: int) -> None:
        if stopped.is_set():
            raise _Stopped
        tally.add_bytes(count)

    def read(path: str) -> None:
        tally.begin(path)
        try:
            digests[path] = file_digest(folder / path, kinds[path], on_bytes)
        except OSError as error:
            raise unreadable(folder / path, error) from error
        tally.end()

    progress.begin("read", tally.measure)
    jobs = [bind(read, path) for path in sorted(kinds, key=lambda path: -_size(folder / path))]
    run_all(jobs, num_threads=MAX_READERS, tick=progress.show, stop=stopped.set)
    progress.finish()
    return digests


def unreadable(path: Path, error: OSError) -> FetchFailed:
    """What to say of a file or folder that the volume does not hand out."""
    return FetchFailed(
        contract.REASON_SOURCE_UNREADABLE,
        f"{path}: cannot be read: {error.strerror}; the pod's user or group must be allowed to",
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
