"""Bring a folder to the pinned files of a mounted volume or image: compared byte by byte, then linked.

A volume's files may be changed by anyone who may write to it. The record goes into the model's folder
and never onto the volume, which is mounted read-only. As long as the folder lives (of an emptyDir as
long as the pod, on a cache for ever), files that were not written to since are not read again. The folder
gets links, so that the engine finds every model alike.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from octavo import engine_contract as contract
from octavo_engine.fetching.checking import clear_strays, intact_manifest, usable_record
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.fetch import make_folder
from octavo_engine.fetching.folder_lock import folder_lock
from octavo_engine.fetching.manifest import (
    Manifest,
    Record,
    build_manifest,
    forget_record,
    is_unchanged,
    write_record,
)
from octavo_engine.fetching.mounted import MountedFiles, read_mounted
from octavo_engine.fetching.order import FetchOrder
from octavo_engine.fetching.progress import Progress

logger = logging.getLogger(__name__)


def link_files(order: FetchOrder, mount: Path, progress: Progress) -> Manifest:
    """Bring the folder to links to the commit's files; raises FetchFailed."""
    done = intact_manifest(order)
    if done is not None:
        return done
    make_folder(order.folder)
    with folder_lock(order.folder, tick=progress.show):
        record = usable_record(order)
        if record is not None and not order.thorough and is_unchanged(order.folder, record):
            return record.manifest  # by who held the lock before
        known = None if order.thorough else record
        found = read_mounted(order.source, mount, progress, known=known)
        _check_pinned(order, found, record)
        return _link_all(order, found)


def _check_pinned(order: FetchOrder, found: MountedFiles, record: Record | None) -> None:
    if found.digest == order.commit == order.pinned_digest:
        return
    raise FetchFailed(
        contract.REASON_DIGEST_MISMATCH,
        f"{order.uri}: its files have the manifest digest {found.digest}, and {order.commit} is pinned"
        f"{_changed_since(found, record)}; restore them, or pin what is there now",
    )


def _changed_since(found: MountedFiles, record: Record | None) -> str:
    if record is None:
        return ""
    before = {(file.path, file.digest) for file in record.manifest.files}
    after = {(file.path, file.digest) for file in found.files}
    names = sorted({path for path, _ in before ^ after})
    return f" (changed since: {', '.join(names[:5])})"


def _link_all(order: FetchOrder, found: MountedFiles) -> Manifest:
    manifest = build_manifest(order.origin, order.commit, found.files)
    clear_strays(order, manifest)
    forget_record(order.folder)
    for file in manifest.files:
        _link(order.folder / file.path, found.folder / file.path)
    write_record(order.folder, Record(manifest=manifest, stamps=found.stamps))
    logger.info("%s: all %d files of %s verified", order.folder, len(manifest.files), order.uri)
    return manifest


def _link(link: Path, target: Path) -> None:
    """In place of whatever had the name, at once."""
    new = link.with_name(f".{link.name}.{os.uname().nodename}-{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target.absolute())
    new.replace(link)
