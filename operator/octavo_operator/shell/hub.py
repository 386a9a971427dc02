"""The model hub, through its own client: words to a commit, and config.json at that commit.

No token is ever sent: the operator has none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._http import get_async_session, hf_raise_for_status
from huggingface_hub.utils._validators import validate_repo_id

from octavo import engine_contract as contract
from octavo_operator.decide.pinning import is_commit
from octavo_operator.decide.target import Refusal

TIMEOUT_SECONDS: Final = 10.0
"""For a connection, and between two parts of an answer."""
DEADLINE_SECONDS: Final = 30.0
"""For a whole answer."""
MOST_AT_ONCE: Final = 32
MAX_INFO_BYTES: Final = 16 * 2**20
MAX_CONFIG_BYTES: Final = 2**20
"""The largest that are published, with a list of quantized modules, take some 100 kB."""
HEADERS: Final = {"Accept-Encoding": "identity"}
"""A short answer that unpacks to a long one is of no use here."""
CONFIG_FILE: Final = "config.json"
GIVE_TOKEN: Final = "spec.model.credentialsSecretRef names a Secret whose token may read it"
Config = Mapping[str, object]
AnswerT = TypeVar("AnswerT")


class BadAnswer(Exception):
    """A success by its number, and not what a hub says: a proxy's page, another program, half an answer."""


# The HTTP library under the hub's client differs between its versions; the bases of the client's own error
# are that library's error and OSError.
HUB_ERRORS: Final[tuple[type[Exception], ...]] = (
    *(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)),
    EntryNotFoundError,
    ValueError,
    BadAnswer,
)


class Hub:
    """A hub at one address; used by one event loop."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self._session = get_async_session()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def close(self) -> None:
        await self._session.aclose()

    async def resolve(self, repository: str, revision: str) -> str | Refusal:
        """The commit that the words stand for now."""

        async def ask() -> str:
            validate_repo_id(repository)
            words = f"{quote(repository)}/revision/{quote(revision, safe='')}"
            # "expand" leaves out the list of files, which may be long.
            text, _ = await self.fetch_page(self.url(f"api/models/{words}?expand=sha"), MAX_INFO_BYTES)
            return read_commit(text)

        return await self.answer(ask, f"{repository} at {revision}")

    async def read_config(self, repository: str, commit: str) -> str | Refusal:
        """The text of a JSON object."""

        async def ask() -> str:
            validate_repo_id(repository)
            text = await self.fetch_file(repository, CONFIG_FILE, commit, MAX_CONFIG_BYTES)
            parse_object(text)
            return text

        return await self.answer(ask, f"{CONFIG_FILE} of {repository} at {commit}")

    def url(self, path: str) -> str:
        return f"{self._endpoint}/{path}"

    async def answer(self, ask: Callable[[], Awaitable[AnswerT]], what: str) -> AnswerT | Refusal:
        """What `ask` finds out, or why it could not; at most so many at once, each within its deadline."""
        try:
            async with self._places, asyncio.timeout(DEADLINE_SECONDS):
                return await ask()
        except TimeoutError:
            error: Exception = BadAnswer(f"the answer took longer than {DEADLINE_SECONDS:.0f} s")
        except HUB_ERRORS as said:
            error = said
        return replace(refusal_for(error, what), at_hub=True)

    async def fetch_file(self, repository: str, path: str, commit: str, most_bytes: int) -> str:
        url = hf_hub_url(repository, path, revision=commit, endpoint=self._endpoint)
        text, _ = await self.fetch_page(url, most_bytes)
        return text

    async def fetch_page(self, url: str, most_bytes: int) -> tuple[str, str | None]:
        """The text, and where it goes on."""
        data = bytearray()
        async with self._session.stream(
            "GET", url, headers=HEADERS, timeout=TIMEOUT_SECONDS, follow_redirects=True
        ) as response:
            hf_raise_for_status(response)
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > most_bytes:
                    raise BadAnswer(f"the answer is longer than {most_bytes} bytes")
            following = response.links.get("next", {}).get("url")
        return data.decode(errors="replace"), following


def read_commit(text: str) -> str:
    try:
        commit = parse_object(text).get("sha")
    except ValueError as error:
        raise BadAnswer(str(error)) from error
    if not isinstance(commit, str) or not is_commit(commit):
        raise BadAnswer(f"its answer names no commit ({str(commit)[:60]!r})")
    return commit


def parse_object(text: str) -> Config:
    """Raises ValueError for anything but a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def refusal_for(error: Exception, what: str) -> Refusal:
    """
    | the hub says                                  | reason               | another try may do |
    |-----------------------------------------------|----------------------|--------------------|
    | gated, or forbidden                           | `AccessDenied`       | no                 |
    | no such repository (also: private, no token)  | `RepositoryNotFound` | no                 |
    | no such branch, tag or commit                 | `RevisionNotFound`   | no                 |
    | no such file                                  | `FileMissing`        | no                 |
    | an impossible name or a malformed file        | `InvalidConfig`      | no                 |
    | nothing, nonsense, or that it is out of order | `HubUnavailable`     | yes                |
    """
    match error:
        case GatedRepoError():
            text = f"{what}: the repository is gated and the operator has no access; {GIVE_TOKEN}"
            return Refusal(reason=contract.REASON_GATED, message=text)
        case RepositoryNotFoundError():
            text = f"{what}: there is no such repository, or it is private; {GIVE_TOKEN}"
            return Refusal(reason=contract.REASON_REPO_NOT_FOUND, message=text)
        case RevisionNotFoundError():
            text = f"{what}: the repository has no such branch, tag or commit"
            return Refusal(reason=contract.REASON_REVISION_NOT_FOUND, message=text)
        case EntryNotFoundError():
            return Refusal(reason=contract.REASON_FILE_MISSING, message=f"{what}: there is no such file")
        case HfHubHTTPError() if error.response is not None and error.response.status_code in (401, 403):
            text = f"{what}: the hub denies access ({error.response.status_code}); {GIVE_TOKEN}"
            return Refusal(reason=contract.REASON_GATED, message=text)
        case HFValidationError():
            return Refusal(reason=contract.REASON_REPO_NOT_FOUND, message=f"{what}: {error}")
        case BadAnswer():
            text = f"{what}: the hub answers with nonsense: {error}"
            return Refusal(reason=contract.REASON_HUB_UNAVAILABLE, message=text, lasting=False)
        case HfHubHTTPError() if error.response is not None and error.response.status_code == 429:
            text = f"{what}: the hub takes no more requests for now (429)"
            return Refusal(reason=contract.REASON_HUB_UNAVAILABLE, message=text, lasting=False)
        case ValueError() if not isinstance(error, HfHubHTTPError):
            return Refusal(reason="InvalidConfig", message=f"{what}: {error}")
        case _:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            text = f"{what}: the hub cannot be reached ({said})"
            return Refusal(reason=contract.REASON_HUB_UNAVAILABLE, message=text, lasting=False)
