"""Who may ask: anybody, or those who send one of the keys."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers

from octavo.errors import InvalidSpec
from octavo_engine.server.openai_errors import ApiError

SCHEME = "bearer"


class Access:
    """The keys, of which only digests are kept: they are compared in equal time, and no dump shows them."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Several keys are all good at once, so that one can take another's place without a gap."""
        self._digests = tuple(_digest(key) for key in keys)

    @property
    def needs_key(self) -> bool:
        """Whether a request without a key is refused."""
        return bool(self._digests)

    def refusal(self, headers: Headers) -> ApiError | None:
        """401, or None for a request that may pass."""
        if not self.needs_key:
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        sent = _digest(key.strip()) if scheme.lower() == SCHEME else b""
        if any(hmac.compare_digest(sent, digest) for digest in self._digests):
            return None
        return ApiError(
            401,
            "this server asks for an API key: send Authorization: Bearer KEY with a key that it knows",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def parse_keys(given: Iterable[str], from_environment: str | None) -> tuple[str, ...]:
    """Keys of flags, and those of the environment separated by commas; messages do not repeat them.

    A variable that is set and empty is refused: a Secret without a key in it must not open the server to all.
    """
    listed = (part.strip() for part in from_environment.split(",")) if from_environment is not None else ()
    keys = (*given, *listed)
    for key in keys:
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidSpec("--api-key, OCTAVO_API_KEY: a key has one or more ASCII signs and no space")
    return keys


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()
