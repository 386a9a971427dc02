"""Models that lie on a mounted volume or image: which files they have, and the digest of each.

A volume is untrusted as a hub is: a link that leads out of it is refused, and a file that changes while
it is read is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from octavo import engine_contract as contract
from octavo.model_files import (
    CONFIG_FILE,
    INDEX_FILE,
    MAX_INDEX_BYTES,
    ModelFile,
    ModelIncomplete,
    manifest_digest,
    needed_paths,
    parse_index,
)
from octavo.model_source import ImageSource, ModelSource, VolumeSource
from octavo_engine.fetching.digests import SHA256
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.manifest import FileStamp, Record, read_stamp
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.reading import read_digests, unreadable

MODEL_IMAGE_FOLDER: Final = "models"
"""Where images that are made for serving keep the files (KServe's modelcars), if not at their top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedFiles:
    """The needed files of a mounted folder, with every byte read, now or before."""

    folder: Path
    files: tuple[ModelFile, ...]
    stamps: Mapping[str, FileStamp]

    @property
    def digest(self) -> str:
        """The model's commit."""
        return manifest_digest(self.files)


def read_mounted(
    source: ModelSource, mount: Path, progress: Progress, *, known: Record | None = None
) -> MountedFiles:
    """Read what the source has; files that are as the known record says are not read again.

    Raises FetchFailed.
    """
    try:
        return _read(source, mount, progress, known)
    except FileNotFoundError as error:
        raise _unstable(Path(error.filename)) from error
    except OSError as error:
        raise unreadable(Path(error.filename or mount), error) from error


def _read(source: ModelSource, mount: Path, progress: Progress, known: Record | None) -> MountedFiles:
    folder = _model_folder(source, mount)
    stamps = {path: _stamp(mount, folder / path) for path in sorted(_needed(mount, folder))}
    digests = _known_digests(stamps, known)
    unknown = {path: SHA256 for path in stamps if path not in digests}
    digests |= read_digests(folder, unknown, progress) if unknown else {}
    for path in unknown:
        if read_stamp(folder / path) != stamps[path]:
            raise _unstable(folder / path)
    files = tuple(ModelFile(path=path, size=stamps[path].size, digest=digests[path]) for path in stamps)
    return MountedFiles(folder=folder, files=files, stamps=stamps)


def _known_digests(stamps: Mapping[str, FileStamp], known: Record | None) -> dict[str, str]:
    if known is None:
        return {}
    return {
        file.path: file.digest
        for file in known.manifest.files
        if file.path in stamps and stamps[file.path] == known.stamps.get(file.path)
    }


def _model_folder(source: ModelSource, mount: Path) -> Path:
    folder = mount / source.path if isinstance(source, VolumeSource) else mount
    _require_inside(mount, folder)
    if not folder.is_dir():
        raise FetchFailed(contract.REASON_SOURCE_UNREADABLE, f"{folder}: the volume has no such folder")
    inner = folder / MODEL_IMAGE_FOLDER
    if isinstance(source, ImageSource) and not (folder / CONFIG_FILE).exists() and inner.is_dir():
        _require_inside(mount, inner)
        return inner
    return folder


def _needed(mount: Path, folder: Path) -> frozenset[str]:
    try:
        paths = {entry.name for entry in folder.iterdir() if entry.is_file()}
        index = _read_index(mount, folder) if INDEX_FILE in paths else None
        return needed_paths(paths, index)
    except ModelIncomplete as error:
        raise FetchFailed(error.reason, f"{folder}: {error}") from error


def _read_index(mount: Path, folder: Path) -> Mapping[str, object]:
    return parse_index(read_small(mount, folder / INDEX_FILE, MAX_INDEX_BYTES))


def read_small(mount: Path, path: Path, most_bytes: int) -> bytes:
    """The contents of a file that should not be large; raises ModelIncomplete if it is."""
    _require_inside(mount, path)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ModelIncomplete(f"{path.name} has more than {most_bytes} bytes")
    return content


def _stamp(mount: Path, path: Path) -> FileStamp:
    _require_inside(mount, path)
    found = path.stat()
    return FileStamp(found.st_size, found.st_mtime_ns)


def _require_inside(mount: Path, path: Path) -> None:
    """Links within the volume are fine: a hub's own cache is made of them."""
    if not path.resolve().is_relative_to(mount.resolve()):
        raise FetchFailed(contract.REASON_SOURCE_UNREADABLE, f"{path}: leads out of the volume")


def _unstable(path: Path) -> FetchFailed:
    return FetchFailed(
        contract.REASON_SOURCE_UNREADABLE, f"{path}: is being written to; try again when it is whole"
    )
