"""What is written down about a cluster, so that another run can use it or take it away."""

import dataclasses
import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

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


def write_record(paths: ClusterPaths, record: ClusterRecord) -> None:
    """Replace the record in one move, so that a crash leaves the old one or the new one."""
    unfinished = paths.record.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(dataclasses.asdict(record), default=str, indent=2) + "\n")
    unfinished.replace(paths.record)


def read_record(paths: ClusterPaths) -> ClusterRecord | None:
    """The record, or None where no cluster has begun."""
    try:
        content = json.loads(paths.record.read_text())
    except FileNotFoundError:
        return None
    owner, store = content.pop("owner"), content.pop("image_store")
    return ClusterRecord(
        **content, owner=Owner(**owner) if owner else None, image_store=Path(store) if store else None
    )


@contextmanager
def cluster_lock(paths: ClusterPaths) -> Iterator[None]:
    """One run at a time starts or stops a given cluster; the kernel releases it however a run ends."""
    paths.lock.parent.mkdir(parents=True, exist_ok=True)
    with paths.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
