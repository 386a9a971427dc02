"""A hub's token from a mounted file: it appears in no argument, no environment, no log and no message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from octavo.engine_contract import FLAG_TOKEN_FILE, REASON_GATED
from octavo_engine.fetching.errors import FetchFailed

TOKEN: Final = re.compile(r"[!-~]{1,4096}")
"""What can stand in a header. A client that is given anything else shows it in its error."""


def read_token(path: Path) -> str:
    """The token; read each time it is used, because a mounted Secret may be renewed meanwhile.

    Raises FetchFailed, whose message never holds the contents.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise FetchFailed(
            REASON_GATED,
            f"{FLAG_TOKEN_FILE} {path}: cannot be read ({error.strerror}); the Secret of "
            "spec.model.credentialsSecretRef must have the key token",
        ) from error
    except UnicodeDecodeError:
        token = ""
    if not TOKEN.fullmatch(token):
        raise FetchFailed(REASON_GATED, f"{FLAG_TOKEN_FILE} {path}: does not hold a token on one line")
    return token
