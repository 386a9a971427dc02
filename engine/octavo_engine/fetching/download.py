"""Download files into a folder, several at once, each verified before it gets its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial as bind
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract
from octavo.model_files import ModelFile
from octavo_engine.fetching.digests import matches
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.parallel import run_all
from octavo_engine.fetching.progress import Measure, Progress, measure_files
from octavo_engine.fetching.space import disk_full

INCOMING: Final = ".incoming"
MAX_PARALLEL: Final = 4
ATTEMPTS: Final = 2
"""A digest that is wrong after resuming may be an old piece's fault, so once more whole; or another
process took the file away, because it was first to finish it."""


@dataclass(frozen=True, slots=True)
class Download:
    """Of one commit's files into one folder."""

    hub: Hub
    commit: str
    folder: Path

    @property
    def where(self) -> str:
        """The files' place, for messages."""
        return f"{self.hub.repository} at {self.commit}"

    def get_all(self, missing: Sequence[ModelFile], *, of: Sequence[ModelFile], progress: Progress) -> None:
        """Get all that are missing, the largest first; raises FetchFailed."""
        progress.begin("fetched", bind(measure_download, self.folder, of))
        jobs = [bind(self.get, file) for file in sorted(missing, key=lambda file: -file.size)]
        try:
            run_all(jobs, num_threads=MAX_PARALLEL, tick=progress.show, stop=self.hub.stop)
        except FetchFailed as failure:
            if failure.reason == contract.REASON_DISK_FULL:
                raise disk_full(self.folder, num_bytes_missing(self.folder, of)) from failure
            raise
        progress.finish()

    def get(self, file: ModelFile) -> None:
        """One file; another process that does not know of us may bring it meanwhile."""
        target, partial = self.folder / file.path, partial_path(self.folder, file)
        for _ in range(ATTEMPTS):
            if matches(target, size=file.size, digest=file.digest):
                return
            with suppress(FileNotFoundError):  # another process has finished and tidied up
                partial.parent.mkdir(exist_ok=True)
                self.hub.download(self.commit, file, partial)
                if _settle(partial, target, file):
                    return
        raise FetchFailed(
            contract.REASON_DIGEST_MISMATCH,
            f"{file.path} of {self.where}: the bytes that the hub sends do not have the digest that it "
            f"lists, {file.digest}; its storage is damaged or something alters the transfer",
        )


def partial_path(folder: Path, file: ModelFile) -> Path:
    """Named by its contents, so that it never goes on with another commit's file."""
    return folder / INCOMING / file.digest.partition(":")[2]


def measure_download(folder: Path, files: Sequence[ModelFile]) -> Measure:
    """How much of the files is there, whoever fetches them."""
    return measure_files(files, folder, bind(partial_path, folder))


def num_bytes_missing(folder: Path, files: Sequence[ModelFile]) -> int:
    """What is still to come."""
    measure = measure_download(folder, files)
    return measure.bytes_total - measure.bytes_done


def _settle(partial: Path, target: Path, file: ModelFile) -> bool:
    """Give a file its name if it is right, on the disk too."""
    if not matches(partial, size=file.size, digest=file.digest):
        partial.unlink(missing_ok=True)
        return False
    with partial.open("rb") as content:
        os.fsync(content.fileno())
    partial.replace(target)
    return True
