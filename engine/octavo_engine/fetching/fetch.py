"""Bring a folder to a hub's commit: what is there and verified is not fetched again.

| the folder holds                                   | what is done                                         |
|----------------------------------------------------|------------------------------------------------------|
| the record, no file written to since               | nothing: no lock is taken and no hub is asked        |
| the record, files written to since, or `thorough`  | those are read; the damaged ones are fetched again   |
| files without a record                             | they are read; what is missing or wrong is fetched   |
| another commit's record                            | refused: somebody may be serving it                  |
| files that the commit does not have                | removed, if an earlier fetch made the folder         |

A file gets its final name only after its digest was found right; until then it lies in `.incoming`,
where an interrupted download goes on. The record is written last, so a folder with a record is whole.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from functools import partial as bind
from pathlib import Path
from typing import Final

from octavo.model_files import (
    INDEX_FILE,
    MAX_INDEX_BYTES,
    ModelFile,
    ModelIncomplete,
    needed_paths,
    parse_index,
)
from octavo.units import format_bytes
from octavo_engine.fetching.checking import (
    check_manifest_digest,
    clear_strays,
    find_damaged,
    intact_manifest,
    usable_record,
)
from octavo_engine.fetching.download import (
    INCOMING,
    Download,
    measure_download,
    num_bytes_missing,
)
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.folder_lock import folder_lock
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.manifest import (
    Manifest,
    Record,
    build_manifest,
    forget_record,
    is_unchanged,
    read_manifest,
    stamp_files,
    write_manifest,
    write_record,
)
from octavo_engine.fetching.order import FetchOrder
from octavo_engine.fetching.progress import Measure, Progress
from octavo_engine.fetching.space import check_space, disk_full, is_disk_full, not_writable

logger = logging.getLogger(__name__)

MAX_SKIPPED_SHOWN: Final = 8
BLOCK_BYTES: Final = 4096


def fetch(order: FetchOrder, hub: Hub, progress: Progress) -> Manifest:
    """Bring the folder to the commit's files; raises FetchFailed."""
    done = intact_manifest(order)
    if done is not None:
        return done
    make_folder(order.folder)
    progress.begin("fetched", bind(_measure_others, order))
    try:
        with folder_lock(order.folder, tick=progress.show):
            record = usable_record(order)
            if record is not None and not order.thorough and is_unchanged(order.folder, record):
                return record.manifest  # by who held the lock before
            return _bring(order, hub, progress, record)
    except OSError as error:  # of what is written beside the files
        if is_disk_full(error):
            raise disk_full(order.folder, _num_bytes_needed(order)) from error
        raise


def _num_bytes_needed(order: FetchOrder) -> int:
    """As far as it is known; one block at least, for what could not be written."""
    manifest = read_manifest(order.folder)
    missing = 0 if manifest is None else num_bytes_missing(order.folder, manifest.files)
    return max(missing, BLOCK_BYTES)


def make_folder(folder: Path) -> None:
    """Raises FetchFailed where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error


def _measure_others(order: FetchOrder) -> Measure:
    """How far the process is that holds the lock, by the list of files that it wrote."""
    manifest = read_manifest(order.folder)
    return Measure() if manifest is None else measure_download(order.folder, manifest.files)


def _bring(order: FetchOrder, hub: Hub, progress: Progress, record: Record | None) -> Manifest:
    download = Download(hub, order.commit, order.folder)
    manifest = _listed(order, download) if record is None else record.manifest
    clear_strays(order, manifest)
    stamps = {} if record is None else record.stamps
    missing = find_damaged(order, manifest.files, stamps, progress)
    if missing and record is not None:
        names = ", ".join(file.path for file in missing)
        logger.warning("%s: damaged since it was verified, so fetched again: %s", order.folder, names)
    if missing:
        _fetch_missing(download, progress, manifest, missing)
    write_record(order.folder, stamp_files(order.folder, manifest))
    shutil.rmtree(order.folder / INCOMING, ignore_errors=True)
    logger.info("%s: all %d files verified", order.folder, len(manifest.files))
    return manifest


def _listed(order: FetchOrder, download: Download) -> Manifest:
    manifest = build_manifest(order.origin, order.commit, choose_files(download))
    check_manifest_digest(order, manifest)
    return manifest


def _fetch_missing(
    download: Download, progress: Progress, manifest: Manifest, missing: Sequence[ModelFile]
) -> None:
    forget_record(download.folder)
    write_manifest(download.folder, manifest)
    for file in missing:
        (download.folder / file.path).unlink(missing_ok=True)
    check_space(download.folder, num_bytes_missing(download.folder, manifest.files))
    download.get_all(missing, of=manifest.files, progress=progress)


def choose_files(download: Download) -> list[ModelFile]:
    """What to fetch of a commit; of sharded weights the index must be fetched to know."""
    listing = {file.path: file for file in download.hub.listing(download.commit)}
    try:
        wanted = needed_paths(listing, _read_index(download, listing.get(INDEX_FILE)))
    except ModelIncomplete as error:
        raise FetchFailed(error.reason, f"{download.where}: {error}") from error
    chosen = [listing[path] for path in sorted(wanted)]
    _say_choice(download.where, chosen, [file for path, file in listing.items() if path not in wanted])
    return chosen


def _read_index(download: Download, file: ModelFile | None) -> Mapping[str, object] | None:
    if file is None:
        return None
    if file.size > MAX_INDEX_BYTES:
        raise ModelIncomplete(f"{INDEX_FILE} has {file.size} bytes; an index has at most {MAX_INDEX_BYTES}")
    download.get(file)
    return parse_index((download.folder / INDEX_FILE).read_bytes())


def _say_choice(where: str, chosen: Sequence[ModelFile], skipped: Sequence[ModelFile]) -> None:
    num_bytes = sum(file.size for file in chosen)
    logger.info("%s has %d files that are needed (%s)", where, len(chosen), format_bytes(num_bytes))
    if skipped:
        names = [file.path for file in skipped]
        more = f" and {len(names) - MAX_SKIPPED_SHOWN} more" if len(names) > MAX_SKIPPED_SHOWN else ""
        shown = ", ".join(names[:MAX_SKIPPED_SHOWN]) + more
        num_bytes = sum(file.size for file in skipped)
        logger.info("the engine does not need, so skipped (%s): %s", format_bytes(num_bytes), shown)
