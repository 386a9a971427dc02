"""Incremental detokenization: the text of a token stream, piece by piece, as it would read as a whole.

Decoding each token alone is wrong twice: a character's UTF-8 bytes may be split over tokens (each
half reads as U+FFFD), and SentencePiece decoders strip the space in front of the first token they see.
So a small window of tokens is decoded again for each new token, and only text that later tokens
cannot change is emitted. A window always starts with tokens that gave text already, so that what
decoders do to the beginning of their input falls on text that is out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

REPLACEMENT: Final = "\ufffd"
"""What a decoder gives for bytes that are no UTF-8 character, or not yet."""

MAX_PENDING_REPLACEMENTS: Final = 16
"""Trailing U+FFFD that may still become a character; more are bytes that never will.

A character has at most 4 bytes. Byte-fallback decoders turn a whole run of bytes into U+FFFD when its
last character is incomplete: the window's 4 old bytes and 3 new ones, far below this.
"""

MAX_CONTEXT_TOKENS: Final = 8
"""Prompt tokens put in front so that the first generated token keeps its leading space."""

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """The text of one sequence. `push` gives what became certain, `flush` the rest at the end.

    The concatenation of all pieces does not depend on how tokens were grouped into pushes.
    """

    def __init__(
        self, decode: Decode, *, silent_ids: Container[int] = (), context: Sequence[int] = ()
    ) -> None:
        self._decode = decode
        self._silent_ids = silent_ids
        self._window = list(context[-MAX_CONTEXT_TOKENS:])
        self._num_old = len(self._window)
        self._text = decode(self._window) if self._window else ""
        if self._text.endswith(REPLACEMENT):
            self._window, self._num_old, self._text = [], 0, ""
        self._num_emitted = len(self._text)

    def push(self, token_id: int) -> str:
        """The text that this token made certain; often empty in the middle of a character.

        Special tokens give none and stay out of the window, which they would make grow without end.
        """
        if token_id in self._silent_ids:
            return ""
        self._window.append(token_id)
        self._text = self._decode(self._window)
        stable = self._text.rstrip(REPLACEMENT)
        if len(self._text) - len(stable) > MAX_PENDING_REPLACEMENTS:
            stable = self._text
        piece = self._emit(len(stable))
        if piece and len(stable) == len(self._text):
            self._advance()
        return piece

    def flush(self) -> str:
        """Text still held back; the sequence has ended, so an incomplete character stays U+FFFD."""
        return self._emit(len(self._text))

    def _emit(self, end: int) -> str:
        if end <= self._num_emitted:
            return ""
        piece = self._text[self._num_emitted : end]
        self._num_emitted = end
        return piece

    def _advance(self) -> None:
        """Forget the oldest tokens: those pushed since the last advance become the old ones."""
        del self._window[: self._num_old]
        self._num_old = len(self._window)
        self._text = self._decode(self._window)
        self._num_emitted = len(self._text)


def token_offsets(decode: Decode, token_ids: Sequence[int], *, silent_ids: Container[int]) -> list[int]:
    """Where in the text of all of them each token begins."""
    detokenizer = IncrementalDetokenizer(decode, silent_ids=silent_ids)
    offsets, length = [], 0
    for token_id in token_ids:
        offsets.append(length)
        length += len(detokenizer.push(token_id))
    return offsets
