"""Whether what is still to come fits on the model volume, in numbers."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from octavo import engine_contract as contract
from octavo.units import format_bytes
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.manifest import ManifestInvalid, read_record


def check_space(folder: Path, need_bytes: int) -> None:
    """Raise FetchFailed before the first byte rather than after the last that fits."""
    have = shutil.disk_usage(folder).free
    if need_bytes > have:
        raise disk_full(folder, need_bytes)


def disk_full(folder: Path, need_bytes: int) -> FetchFailed:
    """The refusal, with what else lies on the volume."""
    have = shutil.disk_usage(folder).free
    return FetchFailed(
        contract.REASON_DISK_FULL,
        f"{folder}: {format_bytes(need_bytes)} are still to fetch and {format_bytes(have)} are free; "
        f"use a larger volume{_others_on_volume(folder)}",
    )


def not_writable(folder: Path, error: OSError) -> FetchFailed:
    """What to say of a model folder that cannot be made or used."""
    return FetchFailed(
        contract.REASON_NOT_WRITABLE,
        f"{contract.FLAG_FETCH_TO} {folder}: cannot be written: {error.strerror}; the volume must allow it "
        f"to user {os.geteuid()}",
    )


def is_disk_full(error: Exception) -> bool:
    """Of the volume, or of this user's share in it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _others_on_volume(folder: Path) -> str:
    """Other models in the same cache, which may be what is in the way: nothing is removed by itself."""
    others = [(path.name, _record_bytes(path)) for path in sorted(folder.parent.iterdir()) if path != folder]
    named = [f"{name} ({format_bytes(size)})" for name, size in others if size]
    return f", or remove models that nobody serves any more: {', '.join(named[:5])}" if named else ""


def _record_bytes(path: Path) -> int:
    try:
        record = read_record(path)
    except (ManifestInvalid, OSError):
        return 0
    return 0 if record is None else record.manifest.num_bytes
