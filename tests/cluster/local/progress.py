"""Steps and their times, on standard error, so that standard output stays fit for `eval`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Print one line at once, also where standard error is a file."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a step before it begins, and its time after it worked."""
    started = time.monotonic()
    print(f"  {text} … ", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        say(f"failed after {time.monotonic() - started:.1f} s")
        raise
    say(f"{time.monotonic() - started:.1f} s")
