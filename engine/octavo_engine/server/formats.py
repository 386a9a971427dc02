"""How completions and chat write an answer, whole or in pieces. Nothing here knows how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from octavo_engine.requests import TokenLogprob
from octavo_engine.server.choices import Choice, Delta, Echo, Whole
from octavo_engine.text.choice_text import PlacedLogprob
from octavo_engine.text.detokenizer import token_offsets
from octavo_engine.text.tokenizer import TextTokenizer
from octavo_engine.text.tool_calls import CallDelta

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

    def pieces(self, choice: Choice, delta: Delta) -> Sequence[Json]:
        """Pieces of a stream."""

    def whole(self, choice: Choice, whole: Whole) -> Json:
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
        """The echoed prompt, unless it has to wait for its log-probabilities."""
        if choice.echo is None or self._with_logprobs:
            return None
        return self._choice(choice.index, choice.echo.text, None, None)

    def pieces(self, choice: Choice, delta: Delta) -> Sequence[Json]:
        """One piece, the finish reason with the last text; an echo with log-probabilities before it."""
        start = 0 if choice.echo is None else len(choice.echo.text)
        shown = self._logprobs(delta.logprobs, start)
        piece = self._choice(delta.index, delta.text, shown, delta.finish_reason)
        if choice.echo is None or not delta.prompt_logprobs:
            return [piece]
        echoed = self._prompt_logprobs(choice.echo, delta.prompt_logprobs)
        return [self._choice(delta.index, choice.echo.text, echoed, None), piece]

    def whole(self, choice: Choice, whole: Whole) -> Json:
        """Echo and text in one."""
        text = whole.text if choice.echo is None else choice.echo.text + whole.text
        shown = self._logprobs(whole.logprobs, len(text) - len(whole.text))
        if shown is not None and choice.echo is not None:
            echoed = self._prompt_logprobs(choice.echo, whole.prompt_logprobs)
            shown = {name: echoed[name] + values for name, values in shown.items()}
        return self._choice(choice.index, text, shown, choice.finish_reason)

    def _choice(self, index: int, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _prompt_logprobs(self, echo: Echo, entries: Sequence[TokenLogprob | None]) -> Json:
        label = self._tokenizer.token_label
        return {
            "tokens": [label(token_id) for token_id in echo.token_ids],
            "token_logprobs": [None if entry is None else _finite(entry.logprob) for entry in entries],
            "top_logprobs": [
                None if entry is None else {label(token_id): _finite(value) for token_id, value in entry.top}
                for entry in entries
            ],
            "text_offset": token_offsets(
                self._tokenizer.decode, echo.token_ids, silent_ids=self._tokenizer.special_ids
            ),
        }

    def _logprobs(self, entries: Sequence[PlacedLogprob], start: int) -> Json | None:
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
            "text_offset": [start + entry.text_offset for entry in entries],
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

    def pieces(self, choice: Choice, delta: Delta) -> Sequence[Json]:
        """The text, calls, then the finish reason with an empty delta."""
        pieces = []
        if delta.text or delta.logprobs:
            shown = self._logprobs(delta.logprobs)
            pieces.append(self._piece(delta.index, {"content": delta.text}, shown, None))
        for call in delta.calls:
            pieces.append(self._piece(delta.index, {"tool_calls": [_call_piece(call)]}, None, None))
        if delta.finish_reason is not None:
            pieces.append(self._piece(delta.index, {}, None, delta.finish_reason))
        return pieces

    def whole(self, choice: Choice, whole: Whole) -> Json:
        """The assistant's message; one that only calls has no content."""
        calls = _whole_calls(whole.calls)
        content = whole.text or None if calls else whole.text
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        return {
            "index": choice.index,
            "message": {**message, "tool_calls": calls} if calls else message,
            "logprobs": self._logprobs(whole.logprobs),
            "finish_reason": choice.reported_finish_reason,
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


def _call_piece(call: CallDelta) -> Json:
    function: Json = {"arguments": call.arguments}
    if call.name is None:
        return {"index": call.index, "function": function}
    return {
        "index": call.index,
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, **function},
    }


def _whole_calls(pieces: Sequence[CallDelta]) -> list[Json]:
    calls: list[Json] = []
    for piece in pieces:
        if piece.name is None:
            calls[piece.index]["function"]["arguments"] += piece.arguments
        else:
            function = {"name": piece.name, "arguments": piece.arguments}
            calls.append({"id": piece.call_id, "type": "function", "function": function})
    return calls


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
