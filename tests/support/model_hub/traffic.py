"""The log of what was asked of a hub, so that a test can prove what a client did and did not do."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.model_hub.answers import Reply, Request
from tests.support.model_hub.store import HubStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    method: str
    path: str
    """Decoded, without the query."""
    status: int
    has_token: bool
    range: str | None
    user_agent: str

    @classmethod
    def of(cls, request: Request, reply: Reply) -> LoggedRequest:
        return cls(
            method=request.method,
            path=unquote(urlsplit(request.target).path),
            status=reply.status,
            has_token=request.has_token,
            range=request.headers.get("range"),
            user_agent=request.headers.get("user-agent", ""),
        )

    @property
    def file_revision(self) -> str | None:
        """The revision at which a file was asked for; None if it was no file."""
        repo_and_name = self.path.split("/resolve/", 1)
        return repo_and_name[1].partition("/")[0] if len(repo_and_name) == 2 else None


def log_request(store: HubStore, request: LoggedRequest) -> None:
    line = json.dumps(asdict(request)).encode() + b"\n"
    log = os.open(_log(store), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(log, line)  # one write: lines of several threads and processes never mix
    finally:
        os.close(log)


def read_requests(store: HubStore) -> list[LoggedRequest]:
    """Every request so far, oldest first, whichever process served it."""
    log = _log(store)
    lines = log.read_text().splitlines() if log.exists() else []
    return [LoggedRequest(**json.loads(line)) for line in lines]


def forget_requests(store: HubStore) -> None:
    _log(store).unlink(missing_ok=True)


def _log(store: HubStore) -> Path:
    return store.root / "requests.jsonl"
