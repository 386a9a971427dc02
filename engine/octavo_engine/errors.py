"""Why an engine could not start: each error carries the reason that a termination message needs."""

from __future__ import annotations

from octavo.engine_contract import (
    REASON_FILE_MISSING,
    REASON_INSUFFICIENT_MEMORY,
    REASON_UNSUPPORTED_MODEL,
)
from octavo.errors import OctavoError


class StartError(OctavoError):
    """Base of what stops an engine from starting."""

    reason: str = "EngineStartFailed"


class InsufficientMemory(StartError):
    """The memory limit cannot hold the weights, or no block besides."""

    reason = REASON_INSUFFICIENT_MEMORY

    def __init__(self, message: str, *, need_bytes: int, have_bytes: int) -> None:
        super().__init__(message)
        self.need_bytes = need_bytes
        self.have_bytes = have_bytes


class ModelFileError(StartError):
    """A file of the model is missing, cut short, or lacks a tensor."""

    reason = REASON_FILE_MISSING


class UnsupportedModel(StartError):
    """A model or a switch of its configuration that this engine does not run."""

    reason = REASON_UNSUPPORTED_MODEL
