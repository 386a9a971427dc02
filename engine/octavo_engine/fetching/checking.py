"""Whether what lies in a model's folder is what its record says: by sizes and times, else by digests."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.model_files import ModelFile
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.manifest import (
    FileStamp,
    Manifest,
    ManifestInvalid,
    Record,
    find_strays,
    is_unchanged,
    read_manifest,
    read_record,
    read_stamp,
)
from octavo_engine.fetching.order import FetchOrder
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.reading import read_digests

logger = logging.getLogger(__name__)


def usable_record(order: FetchOrder) -> Record | None:
    """The folder's record if it is one of this order; raises InvalidSpec if it is of another commit."""
    try:
        record = read_record(order.folder)
    except ManifestInvalid as error:
        logger.warning("%s; checking every file", error)
        return None
    if record is None:
        return None
    if record.manifest.commit != order.commit:
        raise InvalidSpec(
            f"{contract.FLAG_FETCH_TO} {order.folder}: holds commit {record.manifest.commit}, which somebody "
            "may be serving; give another folder, or remove this one"
        )
    if order.pinned_digest and record.manifest.digest != order.pinned_digest:
        logger.warning("%s: its record is not of the pinned files; checking every file", order.folder)
        return None
    return record if record.manifest.origin == order.origin else None


def intact_manifest(order: FetchOrder) -> Manifest | None:
    """The manifest, if the record is there and no file was written to since; nothing else is looked at."""
    record = None if order.thorough else usable_record(order)
    if record is None or not is_unchanged(order.folder, record):
        return None
    logger.info("%s holds %s at %s already", order.folder, order.origin, order.commit)
    return record.manifest


def check_manifest_digest(order: FetchOrder, manifest: Manifest) -> None:
    """Raise FetchFailed if the files are not those that were resolved."""
    if order.manifest_digest and manifest.digest != order.manifest_digest:
        raise FetchFailed(
            contract.REASON_DIGEST_MISMATCH,
            f"{order.origin} at {order.commit}: its files have the manifest digest {manifest.digest}, and "
            f"{order.manifest_digest} was resolved; what answers for the hub does not tell the same twice",
        )


def clear_strays(order: FetchOrder, manifest: Manifest) -> None:
    """Take away what the commit does not have: of a folder that is ours; raises InvalidSpec for another.

    Such a file, a chat template or an index of another commit, would change what is served.
    """
    strays = find_strays(order.folder, manifest)
    if not strays:
        return
    names = ", ".join(strays[:5])
    if read_manifest(order.folder) is None:
        raise InvalidSpec(
            f"{contract.FLAG_FETCH_TO} {order.folder}: holds files that are not this commit's, as {names}; "
            "give an empty folder, or remove them"
        )
    logger.warning("%s: not of this commit, so removed: %s", order.folder, names)
    for name in strays:
        (order.folder / name).unlink(missing_ok=True)


def find_damaged(
    order: FetchOrder, files: Sequence[ModelFile], stamps: Mapping[str, FileStamp], progress: Progress
) -> list[ModelFile]:
    """Files that are not there or not right; those that were not written to since are not read again."""
    suspects = [file for file in files if order.thorough or _was_touched(order, file, stamps)]
    kinds = {file.path: file.digest.partition(":")[0] for file in suspects if _has_its_size(order, file)}
    digests = read_digests(order.folder, kinds, progress) if kinds else {}
    return [file for file in suspects if digests.get(file.path) != file.digest]


def _was_touched(order: FetchOrder, file: ModelFile, stamps: Mapping[str, FileStamp]) -> bool:
    stamp = read_stamp(order.folder / file.path)
    return stamp is None or stamp != stamps.get(file.path)


def _has_its_size(order: FetchOrder, file: ModelFile) -> bool:
    stamp = read_stamp(order.folder / file.path)
    return stamp is not None and stamp.size == file.size
