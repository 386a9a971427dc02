"""Wait for something to become true on a cluster, and say what was seen instead when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

POLL_SECONDS = 0.5


def wait_until(
    read: Callable[[], Seen], holds: Callable[[Seen], object], *, seconds: float, what: str
) -> Seen:
    """Read again and again until `holds`; the failure shows the last thing read."""
    deadline = time.monotonic() + seconds
    while not holds(seen := read()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s; last seen {seen}")
        time.sleep(POLL_SECONDS)
    return seen


def stays_true(read: Callable[[], Seen], holds: Callable[[Seen], object], *, seconds: float) -> None:
    """Read for a while and fail at the first time that `holds` does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = read()
        assert holds(seen), seen
        time.sleep(POLL_SECONDS)
