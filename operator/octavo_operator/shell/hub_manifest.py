"""The digest of a commit's files, from the hub's own listing: known before any pod exists.

Pods are told it and refuse other files, so that not even a hub that changes what it has under a commit
can change what is served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from octavo.model_files import (
    INDEX_FILE,
    ModelFile,
    ModelIncomplete,
    manifest_digest,
    needed_paths,
    parse_index,
)
from octavo_operator.decide.target import Refusal
from octavo_operator.shell.hub import BadAnswer, Hub

MAX_PAGES: Final = 32
"""Of a listing, a thousand entries each; only the top folder is listed."""
MAX_PAGE_BYTES: Final = 4 * 2**20
MAX_INDEX_BYTES: Final = 16 * 2**20
"""The largest that are published have 10 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What stands for the needed files."""

    digest: str
    size_bytes: int


class Manifests:
    """One index at a time: one of 10 MB takes some 50 MB for a moment."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._one_index = asyncio.Semaphore(1)

    async def read(self, repository: str, commit: str) -> Manifest | Refusal:
        async def ask() -> Manifest:
            files = await self._list(repository, commit)
            index = await self._read_index(repository, commit) if INDEX_FILE in files else None
            needed = [files[path] for path in needed_paths(files, index)]
            return Manifest(digest=manifest_digest(needed), size_bytes=sum(file.size for file in needed))

        what = f"{repository} at {commit}"
        try:
            return await self._hub.answer(ask, f"the files of {what}")
        except ModelIncomplete as missing:
            return Refusal(reason=missing.reason, message=f"{what}: {missing}", at_hub=True)

    async def _list(self, repository: str, commit: str) -> dict[str, ModelFile]:
        url: str | None = self._hub.url(f"api/models/{quote(repository)}/tree/{commit}")
        files: dict[str, ModelFile] = {}
        for _ in range(MAX_PAGES):
            if url is None:
                return files
            text, url = await self._hub.fetch_page(url, MAX_PAGE_BYTES)
            files |= {file.path: file for file in parse_page(text)}
        raise BadAnswer(f"the listing has more than {MAX_PAGES} pages")

    async def _read_index(self, repository: str, commit: str) -> Mapping[str, object]:
        async with self._one_index:
            text = await self._hub.fetch_file(repository, INDEX_FILE, commit, MAX_INDEX_BYTES)
            return parse_index(text.encode())


def parse_page(text: str) -> list[ModelFile]:
    """Raises BadAnswer for what is no listing."""
    try:
        return [parse_entry(entry) for entry in json.loads(text) if entry["type"] == "file"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAnswer(f"its listing cannot be read ({error!r:.80})") from error


def parse_entry(entry: Mapping[str, Any]) -> ModelFile:
    """Large files are listed with the digest of their bytes, plain ones with git's."""
    lfs = entry.get("lfs")
    digest = f"git-sha1:{entry['oid']}" if lfs is None else f"sha256:{lfs['oid']}"
    path, size = entry["path"], entry["size"]
    if not isinstance(path, str) or type(size) is not int or size < 0:
        raise TypeError(f"{path!r:.60} of {size!r:.60} bytes")
    return ModelFile(path=path, size=size, digest=digest)
