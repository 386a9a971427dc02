"""What is written down about a cluster, so that another run can use it or take it away."""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from tests.cluster.local.paths import ClusterPaths

Mode = Literal["light", "full"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process a cluster was started for; the cluster is abandoned once it has ended."""

    pid: int
    start_ticks: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """Written before the first process starts, and once more when the cluster is up."""

    mode: Mode
    api_port: int
    ready: bool = False
    owner: Owner | None = None
    image_store: Path | None = None  # full: containerd's folder in the cache
    processes: tuple[str, ...] = ()  # what must run for the cluster to be whole; known once it is up

    def is_whole(self, running: set[str]) -> bool:
        """Whether the cluster came up and each of its processes still runs."""
        return self.ready and running.issuperset(self.processes)


def write_record(paths: ClusterPaths, record: ClusterRecord) -> None:
    """Replace the record in one move, so that a crash leaves the old one or the new one."""
    unfinished = paths.record.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(dataclasses.asdict(record), default=str, indent=2) + "\n")
    unfinished.replace(paths.record)


def read_record(paths: ClusterPaths) -> ClusterRecord | None:
    """The record, or None where no cluster has begun.

    One that another version of this tool wrote counts as none too: such a cluster can only be removed.
    """
    try:
        return _parse(json.loads(paths.record.read_text()))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _parse(content: dict[str, Any]) -> ClusterRecord:
    owner, store = content["owner"], content["image_store"]
    return ClusterRecord(
        mode=content["mode"],
        api_port=content["api_port"],
        ready=content["ready"],
        owner=Owner(**owner) if owner else None,
        image_store=Path(store) if store else None,
        processes=tuple(content["processes"]),
    )


@contextmanager
def cluster_lock(paths: ClusterPaths) -> Iterator[None]:
    """One run at a time starts or stops a given cluster; the kernel releases it however a run ends.

    The lock's file goes with the cluster's folder, so whoever waited for it must look whether what it now
    holds is still the file that others will find.
    """
    paths.lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with paths.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_same_file(lock.fileno(), paths.lock):
                continue
            try:
                yield
            finally:
                if not paths.root.exists():
                    paths.lock.unlink()
            return


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
