"""The hub, through its official client: list the files of a commit, get one of them.

Every error becomes a `FetchFailed` with a reason of the contract. What may pass by waiting is tried
again until patience ends; new bytes renew it.
"""

from __future__ import annotations

import io
import logging
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from octavo import engine_contract as contract
from octavo.model_files import ModelFile
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.hub_client import HfApi, RepoFile, build_hf_headers, hf_hub_url, http_get
from octavo_engine.fetching.hub_errors import translate
from octavo_engine.fetching.patience import Patience
from octavo_engine.fetching.token_file import read_token

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger(__name__)

MAX_EXPECTED_BYTES: Final = 50_000_000_000
"""The client refuses to begin a file by plain HTTP that it expects to be larger; so it is not told."""
Answer = TypeVar("Answer")


class Hub:
    """One repository. The endpoint is HF_ENDPOINT's unless another is given."""

    def __init__(
        self,
        repository: str,
        *,
        endpoint: str | None = None,
        token_file: Path | None = None,
        patience: Patience | None = None,
        tell_trouble: Callable[[str], None] = lambda trouble: None,
    ) -> None:
        self.repository = repository
        self._endpoint = endpoint
        self._token_file = token_file
        self._patience = patience or Patience()
        self._tell_trouble = tell_trouble
        self._stopped = threading.Event()

    def find_commit(self, revision: str) -> str:
        """The commit that a branch, tag or commit stands for now."""

        def ask() -> str | None:
            return self._api.model_info(self.repository, revision=revision).sha

        commit = self._patiently(self._at(revision), ask)
        if commit is None:
            raise FetchFailed(
                contract.REASON_HUB_UNAVAILABLE, f"{self._at(revision)}: the hub names no commit"
            )
        return str(commit)

    def listing(self, commit: str) -> list[ModelFile]:
        """Every file of the commit."""

        def ask() -> list[ModelFile]:
            tree = self._api.list_repo_tree(self.repository, revision=commit, recursive=True)
            return [_model_file(entry) for entry in tree if isinstance(entry, RepoFile)]

        return self._patiently(f"list {self._at(commit)}", ask)

    def download(self, commit: str, file: ModelFile, partial: Path) -> None:
        """Get a file; what `partial` holds already is not asked for again."""
        self._patiently(
            f"{file.path} of {self._at(commit)}",
            lambda: self._download(commit, file, partial),
            lambda: _size_of(partial),
        )

    def stop(self) -> None:
        """Let downloads under way end soon, by an error."""
        self._stopped.set()

    def _at(self, revision: str) -> str:
        return f"{self.repository} at {revision}"

    @property
    def _api(self) -> HfApi:
        return HfApi(endpoint=self._endpoint, token=self._token)

    @property
    def _token(self) -> str | None:
        """None: HF_TOKEN's, or what the client keeps for a person who logged in."""
        return None if self._token_file is None else read_token(self._token_file)

    def _download(self, commit: str, file: ModelFile, partial: Path) -> None:
        have = _size_of(partial)
        if have > file.size or partial.is_symlink():  # nobody's part: never written through
            partial.unlink()
            have = 0
        if have == file.size > 0:
            return
        expected = file.size if file.size <= MAX_EXPECTED_BYTES else None
        url = hf_hub_url(self.repository, file.path, revision=commit, endpoint=self._endpoint)
        with StoppableFile(partial, have, self._stopped) as target:
            headers = build_hf_headers(token=self._token)
            http_get(url, target, resume_size=have, headers=headers, expected_size=expected)

    def _patiently(
        self, what: str, work: Callable[[], Answer], bytes_so_far: Callable[[], int] = lambda: 0
    ) -> Answer:
        chance = random.Random()
        waits, reached = self._patience.waits(chance), bytes_so_far()
        while True:
            try:
                answer = work()
            except Exception as error:
                failure = translate(error, what)
                if failure is None:
                    raise
                if bytes_so_far() > reached:
                    waits, reached = self._patience.waits(chance), bytes_so_far()
                wait = next(waits, None) if failure.reason == contract.REASON_HUB_UNAVAILABLE else None
                if wait is None or self._waited_in_vain(failure, wait):
                    raise failure from error
            else:
                self._tell_trouble("")
                return answer

    def _waited_in_vain(self, failure: FetchFailed, wait: float) -> bool:
        """Whether the download was stopped meanwhile."""
        logger.warning("%s; trying again in %.1f s", failure, wait)
        self._tell_trouble(str(failure))
        return self._stopped.wait(wait)


def _size_of(partial: Path) -> int:
    return partial.stat().st_size if partial.is_file() else 0


def _model_file(entry: RepoFile) -> ModelFile:
    digest = f"git-sha1:{entry.blob_id}" if entry.lfs is None else f"sha256:{entry.lfs.sha256}"
    return ModelFile(path=entry.path, size=entry.size, digest=digest)


class StoppableFile(io.BufferedWriter):
    """A file to write on from a position, whose writing can be made to fail from another thread.

    By position and never appended: two who fetch the same file write the same bytes to the same places.
    """

    def __init__(self, path: Path, position: int, stopped: threading.Event) -> None:
        super().__init__(io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b"))
        self.seek(position)
        self._stopped = stopped

    def write(self, data: ReadableBuffer, /) -> int:
        if self._stopped.is_set():
            raise FetchFailed(contract.REASON_HUB_UNAVAILABLE, "the download was stopped")
        return super().write(data)
