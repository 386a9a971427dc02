"""Fetch a model: list, select, download, verify, record. What is there and verified is not fetched again.

A file gets its final name only after its digest was found right; until then it lies in `.incoming`,
where an interrupted download goes on. The record is written last, so a folder with a record is whole.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.units import format_bytes
from octavo_engine.fetching.digests import matches
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.manifest import (
    Manifest,
    ManifestEntry,
    ManifestInvalid,
    build_manifest,
    check_folder,
    write_verified,
)
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.selection import INDEX_FILE, RemoteFile, Selection, has_index, select_files

logger = logging.getLogger(__name__)

URI: Final = re.compile(r"hf://([\w.-]+/[\w.-]+)")
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
INCOMING: Final = ".incoming"
MAX_PARALLEL: Final = 4
SHOW_EVERY_SECONDS: Final = 0.5
MAX_SKIPPED_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """What to fetch, by name and commit, and where to."""

    repository: str
    commit: str
    folder: Path


def parse_order(uri: str, revision: str, folder: Path) -> FetchOrder:
    """Check the arguments; raises InvalidSpec."""
    repository = parse_uri(uri)
    if not COMMIT.fullmatch(revision):
        raise InvalidSpec(
            f"--revision {revision}: must be a full commit of 40 hex digits; a branch or tag may move"
        )
    return FetchOrder(repository=repository, commit=revision, folder=folder)


def parse_uri(uri: str) -> str:
    """The repository that a URI names; raises InvalidSpec.

    >>> parse_uri("hf://org/name")
    'org/name'
    """
    match = URI.fullmatch(uri)
    if match is None:
        raise InvalidSpec(f"--uri {uri}: must be hf://organization/name")
    return match[1]


def fetch(order: FetchOrder, hub: Hub) -> Manifest:
    """Bring the folder to the commit's files; raises FetchFailed."""
    done = _already_fetched(order)
    if done is not None:
        logger.info("%s holds %s at %s already", order.folder, order.repository, order.commit)
        return done
    incoming = order.folder / INCOMING
    _make_folder(incoming)
    selection = choose_files(order.folder, hub)
    _say_selection(order, selection)
    missing = [file for file in selection.wanted if not _is_there(order.folder, file)]
    _check_space(order.folder, incoming, missing)
    _get_all(order.folder, hub, missing, selection)
    return _record(order, selection)


def _already_fetched(order: FetchOrder) -> Manifest | None:
    try:
        manifest = check_folder(order.folder, order.commit)
    except ManifestInvalid as error:
        logger.warning("%s; fetching again", error)
        return None
    return manifest if manifest is not None and manifest.repository == order.repository else None


def _make_folder(incoming: Path) -> None:
    try:
        incoming.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSpec(f"--to {incoming.parent}: cannot be written: {error.strerror}") from error


def choose_files(folder: Path, hub: Hub) -> Selection:
    """What to fetch of a commit; of sharded weights the index must be fetched to know."""
    listing = hub.listing()
    if not has_index(listing):
        return select_files(listing, None)
    index_file = next(file for file in listing if file.path == INDEX_FILE)
    if not _is_there(folder, index_file):
        get_file(folder, hub, index_file)
    try:
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise FetchFailed(contract.REASON_FILE_MISSING, f"{INDEX_FILE} is not JSON: {error}") from error
    return select_files(listing, index if isinstance(index, dict) else {})


def _say_selection(order: FetchOrder, selection: Selection) -> None:
    logger.info(
        "fetching %d files (%s) of %s at %s",
        len(selection.wanted),
        format_bytes(selection.num_bytes),
        order.repository,
        order.commit,
    )
    if selection.skipped:
        names = [file.path for file in selection.skipped]
        more = f" and {len(names) - MAX_SKIPPED_SHOWN} more" if len(names) > MAX_SKIPPED_SHOWN else ""
        shown = ", ".join(names[:MAX_SKIPPED_SHOWN]) + more
        num_bytes = sum(file.size for file in selection.skipped)
        logger.info("the engine does not need, so skipped (%s): %s", format_bytes(num_bytes), shown)


def _is_there(folder: Path, file: RemoteFile) -> bool:
    return matches(folder / file.path, size=file.size, digest=file.digest)


def _check_space(folder: Path, incoming: Path, missing: Sequence[RemoteFile]) -> None:
    need = sum(file.size for file in missing) - _num_bytes(_partial(incoming, file) for file in missing)
    have = shutil.disk_usage(folder).free
    if need > have:
        raise FetchFailed(
            contract.REASON_DISK_FULL,
            f"{folder}: {format_bytes(need)} are still to fetch and {format_bytes(have)} are free; "
            "use a larger volume",
        )


def _num_bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def _partial(incoming: Path, file: RemoteFile) -> Path:
    """Named by its contents, so that it never goes on with another commit's file."""
    return incoming / file.digest.partition(":")[2]


def _get_all(folder: Path, hub: Hub, missing: Sequence[RemoteFile], selection: Selection) -> None:
    progress = Progress(selection.num_bytes, sys.stderr)
    with ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(get_file, folder, hub, file) for file in sorted(missing, key=_largest_first)]
        try:
            _watch(futures, progress, folder, selection)
        except BaseException:
            hub.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _largest_first(file: RemoteFile) -> int:
    return -file.size


def _watch(futures: Sequence[Future[None]], progress: Progress, folder: Path, selection: Selection) -> None:
    pending: set[Future[None]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=SHOW_EVERY_SECONDS, return_when=FIRST_EXCEPTION)
        progress.show(_bytes_there(folder, selection))
        for future in done:
            future.result()
    progress.finish(_bytes_there(folder, selection))


def _bytes_there(folder: Path, selection: Selection) -> int:
    incoming = folder / INCOMING
    partials = _num_bytes(_partial(incoming, file) for file in selection.wanted)
    return partials + _num_bytes(folder / file.path for file in selection.wanted)


def get_file(folder: Path, hub: Hub, file: RemoteFile) -> None:
    """One file; a digest that is wrong after resuming may be an old piece's fault, so once more whole."""
    partial = _partial(folder / INCOMING, file)
    partial.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        hub.download(file, partial)
        if matches(partial, size=file.size, digest=file.digest):
            partial.replace(folder / file.path)
            return
        partial.unlink(missing_ok=True)
    raise FetchFailed(
        contract.REASON_DIGEST_MISMATCH,
        f"{file.path} of {hub.repository} at {hub.commit}: the bytes that the hub sends do not have the "
        f"digest that it lists, {file.digest}; its storage is damaged or something alters the transfer",
    )


def _record(order: FetchOrder, selection: Selection) -> Manifest:
    manifest = manifest_of(order.repository, order.commit, selection)
    write_verified(order.folder, manifest)
    shutil.rmtree(order.folder / INCOMING, ignore_errors=True)
    logger.info("%s: all %d files verified", order.folder, len(manifest.files))
    return manifest


def manifest_of(repository: str, commit: str, selection: Selection) -> Manifest:
    """The record of the wanted files, as the hub lists them."""
    entries = [ManifestEntry(path=file.path, size=file.size, digest=file.digest) for file in selection.wanted]
    return build_manifest(repository, commit, entries)
