"""What config.json said at a commit: it never changes, so it is asked for once."""

from __future__ import annotations

from typing import Final

REMEMBERED_CONFIGS: Final = 256
REMEMBERED_BYTES: Final = 8 * 2**20


class Configs:
    """By uri and commit; as text: a megabyte of brackets would be twenty as objects."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], str] = {}

    def recall(self, uri: str, commit: str) -> str | None:
        return self._texts.get((uri, commit))

    def remember(self, uri: str, commit: str, text: str) -> None:
        self._texts[uri, commit] = text
        while len(self._texts) > REMEMBERED_CONFIGS or sum(map(len, self._texts.values())) > REMEMBERED_BYTES:
            del self._texts[next(iter(self._texts))]
