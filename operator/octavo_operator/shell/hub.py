"""The model hub, through its own client: words to a commit, and config.json at that commit.

The client is synchronous and runs in threads. No token is ever sent: the operator has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import get_session, hf_raise_for_status

from octavo import engine_contract as contract
from octavo_operator.decide.target import Refusal

TIMEOUT_SECONDS: Final = 10.0
CONFIG_FILE: Final = "config.json"
Config = Mapping[str, object]
ResultT = TypeVar("ResultT")

# The HTTP library under the hub's client differs between its versions; the bases of the client's own error
# are that library's error and OSError.
HUB_ERRORS: Final[tuple[type[Exception], ...]] = (
    *(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)),
    EntryNotFoundError,
    ValueError,
)


class Hub:
    """A hub at one address."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint or None
        self._api = HfApi(endpoint=self._endpoint, token=False)

    async def resolve(self, repository: str, revision: str) -> str | Refusal:
        """The commit that the words stand for now."""

        def ask() -> str:
            commit = self._api.model_info(repository, revision=revision, timeout=TIMEOUT_SECONDS).sha
            if commit is None:
                raise ValueError("the hub gave no commit")
            return commit

        return await _answer(ask, f"{repository} at {revision}")

    async def read_config(self, repository: str, commit: str) -> Config | Refusal:
        def ask() -> Config:
            url = hf_hub_url(repository, CONFIG_FILE, revision=commit, endpoint=self._endpoint)
            response = get_session().get(url, timeout=TIMEOUT_SECONDS, follow_redirects=True)
            hf_raise_for_status(response)
            config = response.json()
            if not isinstance(config, dict):
                raise ValueError(f"{CONFIG_FILE} is no JSON object")
            return config

        return await _answer(ask, f"{CONFIG_FILE} of {repository} at {commit}")


async def _answer(ask: Callable[[], ResultT], what: str) -> ResultT | Refusal:
    try:
        return await asyncio.to_thread(ask)
    except HUB_ERRORS as error:
        return refusal_for(error, what)


def refusal_for(error: Exception, what: str) -> Refusal:
    """
    | the hub says                                  | reason               | another try may do |
    |-----------------------------------------------|----------------------|--------------------|
    | gated, or forbidden                           | `AccessDenied`       | no                 |
    | no such repository (also: private, no token)  | `RepositoryNotFound` | no                 |
    | no such branch, tag or commit                 | `RevisionNotFound`   | no                 |
    | no such file                                  | `FileMissing`        | no                 |
    | an impossible name or a malformed file        | `InvalidConfig`      | no                 |
    | nothing, or that it is out of order           | `HubUnavailable`     | yes                |
    """
    match error:
        case GatedRepoError():
            text = f"{what}: the repository is gated and the operator has no access"
            return Refusal(reason=contract.REASON_GATED, message=text)
        case RepositoryNotFoundError():
            text = f"{what}: there is no such repository, or it is private"
            return Refusal(reason=contract.REASON_REPO_NOT_FOUND, message=text)
        case RevisionNotFoundError():
            text = f"{what}: the repository has no such branch, tag or commit"
            return Refusal(reason=contract.REASON_REVISION_NOT_FOUND, message=text)
        case EntryNotFoundError():
            return Refusal(reason=contract.REASON_FILE_MISSING, message=f"{what}: there is no such file")
        case HfHubHTTPError() if error.response is not None and error.response.status_code in (401, 403):
            text = f"{what}: the hub denies access ({error.response.status_code})"
            return Refusal(reason=contract.REASON_GATED, message=text)
        case HFValidationError():
            return Refusal(reason=contract.REASON_REPO_NOT_FOUND, message=f"{what}: {error}")
        case ValueError() if not isinstance(error, HfHubHTTPError):
            return Refusal(reason="InvalidConfig", message=f"{what}: {error}")
        case _:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            text = f"{what}: the hub cannot be reached ({said})"
            return Refusal(reason=contract.REASON_HUB_UNAVAILABLE, message=text, lasting=False)
