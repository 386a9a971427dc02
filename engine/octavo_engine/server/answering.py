"""From an accepted submission to the HTTP answer: one JSON body, or a stream of events."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from octavo_engine.server.choices import AnswerFailed, Choice, Delta, Usage, Whole, count_usage, deltas
from octavo_engine.server.formats import AnswerFormat, Json
from octavo_engine.server.openai_errors import ApiError, error_body
from octavo_engine.server.submissions import Submission

DONE: Final = b"data: [DONE]\n\n"


@dataclass(slots=True, kw_only=True)
class Answer:
    """One request being answered."""

    answer_id: str
    model: str
    system_fingerprint: str | None
    format: AnswerFormat
    choices: Sequence[Choice]
    choices_per_prompt: int
    include_usage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def usage(self) -> Json:
        """Token counts so far."""
        return self.counts().as_json()

    def counts(self) -> Usage:
        """The same as numbers."""
        return count_usage(self.choices, self.choices_per_prompt)

    def envelope(self, kind: str, choices: Sequence[Json], **extra: object) -> Json:
        """What surrounds choices in every body and every event."""
        return {
            "id": self.format.id_prefix + self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "choices": list(choices),
            **extra,
        }

    def piece(self, choices: Sequence[Json], usage: Json | None = None) -> bytes:
        """One event of a stream; with `include_usage` every event has a usage, null but for the last."""
        extra: Json = {"usage": usage} if self.include_usage else {}
        return encode_event(self.envelope(self.format.piece_object, choices, **extra))


def encode_event(value: Json) -> bytes:
    """A server-sent event. Escaped JSON has no line break, and no half of a character."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def answer_whole(answer: Answer, submission: Submission) -> Json:
    """The body of an answer that is not streamed; raises ApiError if the engine fails."""
    wholes = [Whole() for _ in answer.choices]
    try:
        async with aclosing(deltas(submission, answer.choices)) as found:
            async for delta in found:
                wholes[delta.index].add(delta)
    except AnswerFailed as error:
        raise ApiError(error.status, str(error), code="answer_failed") from error
    choices = [answer.format.whole(choice, wholes[choice.index]) for choice in answer.choices]
    return answer.envelope(answer.format.whole_object, choices, usage=answer.usage())


async def answer_stream(answer: Answer, submission: Submission) -> AsyncGenerator[bytes]:
    """Events of a streamed answer. It ends with [DONE]; if it failed, after an error event."""
    try:
        async with aclosing(deltas(submission, answer.choices)) as found:
            for event in _openings(answer):
                yield event
            async for delta in found:
                for event in _pieces(answer, delta):
                    yield event
        if answer.include_usage:
            yield answer.piece([], answer.usage())
    except AnswerFailed as error:
        yield encode_event(error_body(error.status, str(error), code="answer_failed"))
    yield DONE


def _openings(answer: Answer) -> Iterator[bytes]:
    for choice in answer.choices:
        opening = answer.format.opening(choice)
        if opening is not None:
            yield answer.piece([opening])


def _pieces(answer: Answer, delta: Delta) -> Iterator[bytes]:
    for piece in answer.format.pieces(answer.choices[delta.index], delta):
        yield answer.piece([piece])
