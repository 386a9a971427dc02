"""Exit statuses of the commands that talk to a cluster, so that a script can tell a no from a mistake."""

from __future__ import annotations

from typing import Final

from octavo.cli.exit_codes import BAD_INPUT, OK, UNAVAILABLE

__all__ = ["BAD_INPUT", "DIFFERS", "NOT_FOUND", "NOT_READY", "OK", "OWNED_BY_GIT", "STALLED", "UNAVAILABLE"]

NOT_READY: Final = 1
"""`status`: on its way, or waiting for another try."""
DIFFERS: Final = 1
"""`diff`: something would change."""
STALLED: Final = 3
"""`status`: somebody must change something."""
OWNED_BY_GIT: Final = 3
"""`rollback`: nothing was written, since a GitOps tool would undo it."""
NOT_FOUND: Final = 5
"""There is no such object or revision."""
