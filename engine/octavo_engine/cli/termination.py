"""How a failed command tells Kubernetes why: the container's termination message and its exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract

EXIT_FAILED: Final = 1
EXIT_CODES: Final[Mapping[str, int]] = {
    contract.REASON_INVALID_ARGUMENTS: 2,
    contract.REASON_UNSUPPORTED_MODEL: 3,
    contract.REASON_INSUFFICIENT_MEMORY: 4,
    contract.REASON_INVALID_CONFIG: 5,
    contract.REASON_REPO_NOT_FOUND: 10,
    contract.REASON_REVISION_NOT_FOUND: 11,
    contract.REASON_GATED: 12,
    contract.REASON_FILE_MISSING: 13,
    contract.REASON_DIGEST_MISMATCH: 14,
    contract.REASON_DISK_FULL: 15,
    contract.REASON_SOURCE_UNREADABLE: 16,
    contract.REASON_NOT_WRITABLE: 17,
    contract.REASON_HUB_UNAVAILABLE: 75,  # EX_TEMPFAIL: trying again may help
}
"""One exit code per reason; 1 is anything else."""

MAX_MESSAGE_BYTES: Final = 4096
"""The kubelet keeps no more."""

PATH_VARIABLE: Final = "OCTAVO_TERMINATION_LOG"
"""Environment variable that names another file (a pod's terminationMessagePath)."""


def write_termination_message(reason: str, message: str) -> None:
    """Tell why the command failed."""
    write_termination_log(termination_message(reason, message))


def write_termination_log(content: bytes) -> None:
    """Write if the file is there: the kubelet makes it, and a laptop has none."""
    path = Path(os.environ.get(PATH_VARIABLE, contract.TERMINATION_LOG))
    if path.is_file() and os.access(path, os.W_OK):
        path.write_bytes(content)


def termination_message(reason: str, message: str) -> bytes:
    """JSON within the kubelet's limit; a long message is cut, the JSON stays whole."""
    while True:
        content = json.dumps({"reason": reason, "message": message}, ensure_ascii=False).encode()
        excess = len(content) - MAX_MESSAGE_BYTES
        if excess <= 0:
            return content
        message = message[: len(message) - max(1, excess // 4)]
