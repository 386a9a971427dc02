"""Why a fetch failed: the reason is one of the contract's, the message says what to do."""

from __future__ import annotations

from octavo.errors import OctavoError


class FetchFailed(OctavoError):
    """The files cannot be had; `reason` goes into the termination message and decides the exit code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
