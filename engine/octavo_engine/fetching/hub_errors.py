"""The contract's reasons for what the hub's client raises."""

from __future__ import annotations

import re
from typing import Final

from octavo import engine_contract as contract
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.hub_client import errors
from octavo_engine.fetching.space import is_disk_full

TransportError: Final[type[Exception]] = errors.HfHubHTTPError.__mro__[1]
"""The base of the HTTP library's errors, whichever library the client uses (httpx or its successor)."""
CREDENTIALS: Final = "spec.model.credentialsSecretRef, --token-file or HF_TOKEN"
TOO_MANY_REQUESTS: Final = 429
SIGNED: Final = re.compile(r"\?\S+")
"""The query of an address: a storage that the hub redirects to takes it for a key."""

KINDS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (
        errors.GatedRepoError,
        contract.REASON_GATED,
        f"accept its terms on the hub and give a token ({CREDENTIALS})",
    ),
    (
        errors.RepositoryNotFoundError,
        contract.REASON_REPO_NOT_FOUND,
        f"no such repository, or a private one and no token that may read it ({CREDENTIALS})",
    ),
    (errors.RevisionNotFoundError, contract.REASON_REVISION_NOT_FOUND, "the repository has no such revision"),
    (errors.EntryNotFoundError, contract.REASON_FILE_MISSING, "the hub does not have the file (404)"),
    (errors.HFValidationError, contract.REASON_INVALID_ARGUMENTS, "not a repository's name"),
)
"""Order matters: the client's classes derive from each other (gated is a kind of not found)."""


def translate(error: Exception, what: str) -> FetchFailed | None:
    """The failure, or None for what is no error of hub or disk."""
    if isinstance(error, FetchFailed):
        return error
    for kind, reason, advice in KINDS:
        if isinstance(error, kind):
            return FetchFailed(reason, f"{what}: {advice}")
    if isinstance(error, errors.HfHubHTTPError):
        return _by_status(error, what)
    if is_disk_full(error):
        return FetchFailed(contract.REASON_DISK_FULL, f"{what}: no space left on the model volume")
    if isinstance(error, TransportError | ConnectionError | TimeoutError) or _is_short_transfer(error):
        said = SIGNED.sub("?…", str(error))
        return FetchFailed(contract.REASON_HUB_UNAVAILABLE, f"{what}: {type(error).__name__}: {said}")
    return None


def _by_status(error: errors.HfHubHTTPError, what: str) -> FetchFailed:
    status = error.response.status_code
    if status in (401, 403):
        return FetchFailed(contract.REASON_GATED, f"{what}: the hub answers {status}; check {CREDENTIALS}")
    why = " (too many requests)" if status == TOO_MANY_REQUESTS else ""
    return FetchFailed(contract.REASON_HUB_UNAVAILABLE, f"{what}: the hub answers {status}{why}")


def _is_short_transfer(error: Exception) -> bool:
    """The client raises a bare OSError when a connection ended early."""
    return isinstance(error, OSError) and error.errno is None and "Consistency check" in str(error)
