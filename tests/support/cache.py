"""Where built things are kept between runs, and how two runs at once stay out of each other's way.

An entry is made in a folder beside its place and renamed when whole: a run that was killed leaves
nothing that looks finished.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_root() -> Path:
    """`$OCTAVO_CACHE`, else `~/.cache/octavo`; made if it is missing."""
    named = os.environ.get("OCTAVO_CACHE")
    root = Path(named) if named else Path.home() / ".cache" / "octavo"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


@contextmanager
def exclusively(lock_file: Path) -> Iterator[None]:
    """Hold `lock_file` for this process alone; a crash lets go of it."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another run that holds {lock_file}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached_folder(place: Path, build: Callable[[Path], None]) -> Path:
    """Return `place`, first letting `build` fill it if it is not there; whole or not at all."""
    if place.is_dir():
        return place
    with exclusively(place.parent / f".{place.name}.lock"):
        if not place.is_dir():
            _fill(place, build)
    return place


def _fill(place: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{place.name}.part-"
    for left_over in place.parent.glob(f"{prefix}*"):  # we hold the lock: its maker is gone
        shutil.rmtree(left_over)
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        build(unfinished)
        unfinished.chmod(0o755)  # mkdtemp's 0700 would shut out a pod's user
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def report(line: str) -> None:
    """Say what goes on, on stderr: stdout is for results that a script reads."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a step and, when it ended well, how long it took."""
    report(f"  {what} …")
    started = time.monotonic()
    yield
    report(f"  {what}: {time.monotonic() - started:.1f} s")
