"""Exit statuses of `octavo`, so that a script can tell a no from a mistake."""

from __future__ import annotations

from typing import Final

OK: Final = 0
DOES_NOT_FIT: Final = 1
BAD_INPUT: Final = 2
UNSUPPORTED: Final = 3
UNAVAILABLE: Final = 4
"""A hub could not be reached, or does not have or give what was asked for."""
INTERRUPTED: Final = 130
"""As a shell reports a program that Ctrl-C ended."""
OUTPUT_CLOSED: Final = 141
"""As a shell reports a program that wrote to a closed pipe."""
