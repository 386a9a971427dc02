"""containerd's folder, kept in the cache so that the next cluster need not pull gigabytes again.

It survives a cluster the way a node's disk survives a power cut, and containerd and the kubelet handle that.
Only one containerd may use a folder at a time: a cluster takes the fullest one that is free, and its sandbox
holds the lock, so that it is free again exactly when the last process of the cluster has ended.
"""

import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.local.paths import cache_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStore:
    """A folder that this process, and whoever inherits the descriptor, may use alone."""

    folder: Path
    lock: int  # file descriptor


@contextmanager
def take_image_store() -> Iterator[ImageStore]:
    """Lock a free folder; heirs of the descriptor keep the lock after this closes it."""
    stores = cache_dir() / "image-stores"
    stores.mkdir(parents=True, exist_ok=True)
    for folder in _by_preference(stores):
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _try_lock(lock):
                folder.mkdir(exist_ok=True)
                yield ImageStore(folder=folder, lock=lock)
                return
        finally:
            os.close(lock)


def _by_preference(stores: Path) -> Iterator[Path]:
    """Those with the most layers first, as they spare the most pulling; then new ones."""
    known = [folder for folder in stores.iterdir() if folder.is_dir()]
    yield from sorted(known, key=lambda folder: (-_count_layers(folder), folder.name))
    yield from (stores / str(number) for number in itertools.count(1) if stores / str(number) not in known)


def _count_layers(store: Path) -> int:
    return sum(1 for _ in store.glob("io.containerd.snapshotter.v1.overlayfs/snapshots/*"))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
