"""A process that outlives the program that started it, found again by id and start time.

A process id alone may have been given to another process since; with the start time of the kernel's
own table it names one process for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

POLL_SECONDS = 0.05


def start_ticks(pid: int) -> int | None:
    """The kernel's start time of a live process; None when there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def record(path: Path, pid: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "start_ticks": start_ticks(pid)}))


def recorded_pid(path: Path) -> int | None:
    """The recorded process's id while it lives."""
    try:
        saved = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    ticks = start_ticks(saved["pid"])
    return saved["pid"] if ticks is not None and ticks == saved["start_ticks"] else None


def stop(path: Path, patience_seconds: float = 5) -> None:
    """End the recorded process if it lives, at once after the patience, and forget it."""
    deadline = time.monotonic() + patience_seconds
    asked = False
    while (pid := recorded_pid(path)) is not None:
        late = time.monotonic() > deadline
        if late or not asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            asked = True
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_SECONDS)
    path.unlink(missing_ok=True)
