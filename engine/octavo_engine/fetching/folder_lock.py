"""One process at a time brings a model into a folder, also where pods of several nodes share the volume.

The lock is the kernel's (`flock`): whoever dies lets go of it, so a killed pod blocks nobody. On NFS
the server takes it from a lost node after the lease, if it does; some volumes have no locks at all, or
locks of each node for itself. Therefore the lock saves work but correctness does not hang on it: files
are written by position and verified before they get their names, so that two who fetch the same commit
at once write the same bytes. A holder that gives no sign of life is not waited for.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from octavo_engine.fetching.space import not_writable

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".octavo-lock"
BEAT_SECONDS: Final = 5.0
"""How often a holder touches the lock file."""
SILENCE_SECONDS: Final = 120.0
"""Without a touch; a network file system may show one as late as a minute."""
POLL_SECONDS: Final = 0.5
SAY_EVERY_SECONDS: Final = 30.0
BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def folder_lock(folder: Path, *, tick: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock, or go on without it where it cannot be had; `tick` is called while waiting."""
    handle = _open(folder)
    try:
        held = _wait_for_lock(handle, folder, tick)
        with _beating(handle, held=held):
            yield
    finally:
        os.close(handle)


def _open(folder: Path) -> int:
    try:
        return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise not_writable(folder, error) from error


def _wait_for_lock(handle: int, folder: Path, tick: Callable[[], None]) -> bool:
    """Whether the lock is held; by our own clock alone, for those of nodes and servers differ."""
    last_beat, heard = _beat_of(handle), time.monotonic()
    said = -SAY_EVERY_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in BUSY:
                logger.warning("%s: its volume has no locks (%s); going on without", folder, error.strerror)
                return False
        now, beat = time.monotonic(), _beat_of(handle)
        if beat != last_beat:
            last_beat, heard = beat, now
        if now - heard > SILENCE_SECONDS:
            logger.warning("%s: its lock's holder was silent for %.0f s; going on", folder, now - heard)
            return False
        if now - said >= SAY_EVERY_SECONDS:
            said = now
            logger.info("%s: another process is fetching into it; waiting", folder)
        tick()
        time.sleep(POLL_SECONDS)


def _beat_of(handle: int) -> int:
    return os.fstat(handle).st_mtime_ns


@contextmanager
def _beating(handle: int, *, held: bool) -> Iterator[None]:
    """Touch the lock file while it is held."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(OSError):  # the work itself will say what is wrong with the volume
                os.utime(handle)

    if not held:
        yield
        return
    os.utime(handle)
    thread = threading.Thread(target=beat, name="fetch-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
