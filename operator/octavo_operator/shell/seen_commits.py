"""What was seen of a commit: its config.json and the digest of its files. Neither ever changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REMEMBERED_COMMITS: Final = 256
REMEMBERED_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCommit:
    """The configuration as text: a megabyte of brackets would be twenty as objects."""

    config: str
    manifest_digest: str
    size_bytes: int


class SeenCommits:
    """By uri and commit, for all services together."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], SeenCommit] = {}

    def recall(self, uri: str, commit: str) -> SeenCommit | None:
        return self._seen.get((uri, commit))

    def remember(self, uri: str, commit: str, seen: SeenCommit) -> None:
        self._seen[uri, commit] = seen
        while len(self._seen) > REMEMBERED_COMMITS or self._num_bytes() > REMEMBERED_BYTES:
            del self._seen[next(iter(self._seen))]

    def _num_bytes(self) -> int:
        return sum(len(seen.config) for seen in self._seen.values())
