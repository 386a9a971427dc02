"""How completions and chat write an answer, whole or in pieces. Nothing here knows how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from octavo_engine.server.choices import Choice, Delta
from octavo_engine.text.choice_text import PlacedLogprob
from octavo_engine.text.tokenizer import TextTokenizer

Json = dict[str, Any]

LEAST_LOGPROB: Final = -9999.0
"""Written for a probability of zero: JSON has no minus infinity (the OpenAI API does the same)."""


class AnswerFormat(Protocol):
    """The shapes of one route."""

    id_prefix: str
    whole_object: str
    piece_object: str

    def opening(self, choice: Choice) -> Json | None:
        """The first piece of a stream, before any token."""

    def pieces(self, delta: Delta) -> Sequence[Json]:
        """Pieces of a stream."""

    def whole(self, choice: Choice, text: str, logprobs: Sequence[PlacedLogprob]) -> Json:
        """A choice of an answer that is not streamed."""


class CompletionFormat:
    """/v1/completions."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    piece_object = "text_completion"

    def __init__(self, tokenizer: TextTokenizer, *, with_logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._with_logprobs = with_logprobs

    def opening(self, choice: Choice) -> Json | None:
        """The echoed prompt."""
        return self._choice(choice.index, choice.echo, None, None) if choice.echo else None

    def pieces(self, delta: Delta) -> Sequence[Json]:
        """One piece, the finish reason with the last text."""
        return [self._choice(delta.index, delta.text, self._logprobs(delta.logprobs), delta.finish_reason)]

    def whole(self, choice: Choice, text: str, logprobs: Sequence[PlacedLogprob]) -> Json:
        """Echo and text in one."""
        shown = self._logprobs(logprobs)
        return self._choice(choice.index, choice.echo + text, shown, choice.finish_reason)

    def _choice(self, index: int, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, entries: Sequence[PlacedLogprob]) -> Json | None:
        if not self._with_logprobs:
            return None
        label = self._tokenizer.token_label
        return {
            "tokens": [label(entry.logprob.token_id) for entry in entries],
            "token_logprobs": [_finite(entry.logprob.logprob) for entry in entries],
            "top_logprobs": [
                {label(token_id): _finite(value) for token_id, value in entry.logprob.top}
                for entry in entries
            ],
            "text_offset": [entry.text_offset for entry in entries],
        }


class ChatFormat:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    piece_object = "chat.completion.chunk"

    def __init__(self, tokenizer: TextTokenizer, *, with_logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._with_logprobs = with_logprobs

    def opening(self, choice: Choice) -> Json | None:
        """The role comes first."""
        return self._piece(choice.index, {"role": "assistant", "content": ""}, None, None)

    def pieces(self, delta: Delta) -> Sequence[Json]:
        """The text, then the finish reason with an empty delta."""
        pieces = []
        if delta.text or delta.logprobs:
            shown = self._logprobs(delta.logprobs)
            pieces.append(self._piece(delta.index, {"content": delta.text}, shown, None))
        if delta.finish_reason is not None:
            pieces.append(self._piece(delta.index, {}, None, delta.finish_reason))
        return pieces

    def whole(self, choice: Choice, text: str, logprobs: Sequence[PlacedLogprob]) -> Json:
        """The assistant's message."""
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(logprobs),
            "finish_reason": choice.finish_reason,
        }

    def _piece(self, index: int, delta: Json, logprobs: Json | None, finish_reason: str | None) -> Json:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, entries: Sequence[PlacedLogprob]) -> Json | None:
        if not self._with_logprobs:
            return None
        return {"content": [self._entry(entry) for entry in entries], "refusal": None}

    def _entry(self, entry: PlacedLogprob) -> Json:
        logprob = entry.logprob
        top = [self._token(token_id, value) for token_id, value in logprob.top]
        return {**self._token(logprob.token_id, logprob.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> Json:
        token_bytes = list(self._tokenizer.token_bytes(token_id))
        return {
            "token": self._tokenizer.token_text(token_id),
            "logprob": _finite(logprob),
            "bytes": token_bytes,
        }


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
