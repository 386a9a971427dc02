"""Machine code for the inner loop where numba is installed; the same functions in plain Python elsewhere.

There is one code path: `compiled` returns the function as it is if numba is not there, which is some
hundred times slower and gives the same numbers.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

F = TypeVar("F", bound=Callable[..., object])

IS_COMPILED: Final = find_spec("numba") is not None
FOLDER: Final = Path(__file__).parent


def compiled(function: F) -> F:
    """The function, compiled at its first call."""
    if not IS_COMPILED:
        return function
    numba = importlib.import_module("numba")
    numba.config.CACHE_DIR = str(FOLDER / "__pycache__" / f"compiled-{_fingerprint()}")
    try:
        made: F = numba.njit(cache=True)(function)
    except RuntimeError:  # the folder cannot be written: compile anew in each process
        made = numba.njit(function)
    return made


def _fingerprint() -> str:
    """Of this package's sources: numba looks at a function's own file only, not at those that it calls."""
    stamps = sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in FOLDER.glob("*.py"))
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]
