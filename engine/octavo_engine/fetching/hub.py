"""The hub, through its official client: list the files of a commit, get one of them.

Every error becomes a `FetchFailed` with a reason of the contract. What may pass by waiting is tried
again a few times first.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo import engine_contract as contract
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.selection import RemoteFile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # read when the client is imported: plain HTTP only
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # progress is ours

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

TransportError: Final[type[Exception]] = HfHubHTTPError.__mro__[1]
"""The base of the HTTP library's errors, whichever library the client uses (httpx or its successor)."""

logger = logging.getLogger(__name__)

RETRY_WAITS_SECONDS: Final = (1.0, 2.0, 4.0, 8.0)
"""Between attempts to download one file."""


def find_commit(repository: str, revision: str, *, endpoint: str | None = None) -> str:
    """The commit that a branch, tag or commit stands for now; raises FetchFailed."""
    what = f"{repository} at {revision}"
    try:
        commit = HfApi(endpoint=endpoint).model_info(repository, revision=revision).sha
    except Exception as error:
        raise translate(error, what) or error from error
    if commit is None:
        raise FetchFailed(contract.REASON_HUB_UNAVAILABLE, f"{what}: the hub names no commit")
    return str(commit)


class Hub:
    """One repository at one commit. The endpoint is HF_ENDPOINT's unless another is given."""

    def __init__(
        self,
        repository: str,
        commit: str,
        *,
        endpoint: str | None = None,
        waits: Sequence[float] = RETRY_WAITS_SECONDS,
    ) -> None:
        self.repository = repository
        self.commit = commit
        self._waits = waits
        self._endpoint = endpoint
        self._stopped = threading.Event()
        self._api = HfApi(endpoint=endpoint)

    def listing(self) -> list[RemoteFile]:
        """Every file of the commit."""
        what = f"list {self._where}"
        try:  # the client itself tries this again for half a minute
            return self._listing()
        except Exception as error:
            raise translate(error, what) or error from error

    def download(self, file: RemoteFile, partial: Path) -> None:
        """Get a file; what `partial` holds already is not asked for again."""
        self._patiently(f"{file.path} of {self._where}", lambda: self._download(file, partial))

    def stop(self) -> None:
        """Let downloads under way end soon, by an error."""
        self._stopped.set()

    @property
    def _where(self) -> str:
        return f"{self.repository} at {self.commit}"

    def _listing(self) -> list[RemoteFile]:
        tree = self._api.list_repo_tree(self.repository, revision=self.commit, recursive=True)
        return [_remote_file(entry) for entry in tree if isinstance(entry, RepoFile)]

    def _download(self, file: RemoteFile, partial: Path) -> None:
        have = partial.stat().st_size if partial.is_file() else 0
        if have > file.size:
            partial.unlink()
            have = 0
        url = hf_hub_url(self.repository, file.path, revision=self.commit, endpoint=self._endpoint)
        with _StoppableFile(partial, self._stopped) as target:
            http_get(url, target, resume_size=have, headers=build_hf_headers(), expected_size=file.size)

    def _patiently(self, what: str, work: Callable[[], None]) -> None:
        for wait in (*self._waits, None):
            try:
                work()
                return
            except Exception as error:
                failure = translate(error, what)
                if failure is None:
                    raise
                if failure.reason != contract.REASON_HUB_UNAVAILABLE or wait is None:
                    raise failure from error
                logger.warning("%s; trying again in %g s", failure, wait)
                if self._stopped.wait(wait):
                    raise failure from error


class _StoppableFile(io.BufferedWriter):
    """A file to append to, whose writing can be made to fail from another thread."""

    def __init__(self, path: Path, stopped: threading.Event) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._stopped = stopped

    def write(self, data: ReadableBuffer, /) -> int:
        if self._stopped.is_set():
            raise FetchFailed(contract.REASON_HUB_UNAVAILABLE, "the download was stopped")
        return super().write(data)


def _remote_file(entry: RepoFile) -> RemoteFile:
    digest = f"git-sha1:{entry.blob_id}" if entry.lfs is None else f"sha256:{entry.lfs.sha256}"
    return RemoteFile(path=entry.path, size=entry.size, digest=digest)


def translate(error: Exception, what: str) -> FetchFailed | None:
    """The contract's reason for a client error, or None for what is no error of hub or disk.

    Order matters: the client's classes derive from each other (gated is a kind of not found).
    """
    for kind, reason, advice in (
        (GatedRepoError, contract.REASON_GATED, "accept its terms on the hub and give a token (HF_TOKEN)"),
        (
            RepositoryNotFoundError,
            contract.REASON_REPO_NOT_FOUND,
            "no such repository, or a private one and no token that may read it (HF_TOKEN)",
        ),
        (
            RevisionNotFoundError,
            contract.REASON_REVISION_NOT_FOUND,
            "the repository has no such revision",
        ),
        (EntryNotFoundError, contract.REASON_FILE_MISSING, "the hub does not have the file (404)"),
        (HFValidationError, contract.REASON_INVALID_ARGUMENTS, "not a repository's name"),
    ):
        if isinstance(error, kind):
            return FetchFailed(reason, f"{what}: {advice}")
    if isinstance(error, HfHubHTTPError):
        return _by_status(error, what)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FetchFailed(contract.REASON_DISK_FULL, f"{what}: no space left on the model volume")
    if isinstance(error, TransportError | ConnectionError | TimeoutError) or _is_short_transfer(error):
        return FetchFailed(contract.REASON_HUB_UNAVAILABLE, f"{what}: {type(error).__name__}: {error}")
    return None


def _by_status(error: HfHubHTTPError, what: str) -> FetchFailed:
    status = error.response.status_code
    if status in (401, 403):
        return FetchFailed(contract.REASON_GATED, f"{what}: the hub answers {status}; check HF_TOKEN")
    return FetchFailed(contract.REASON_HUB_UNAVAILABLE, f"{what}: the hub answers {status}")


def _is_short_transfer(error: Exception) -> bool:
    """The client raises a bare OSError when a connection ended early."""
    return isinstance(error, OSError) and error.errno is None and "Consistency check" in str(error)
