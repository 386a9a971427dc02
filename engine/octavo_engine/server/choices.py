"""The choices of one answer: tokens of every sequence become text deltas, until all have ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from octavo_engine.requests import EngineRequest, TokenEvent, TokenLogprob
from octavo_engine.server.submissions import Submission
from octavo_engine.text.choice_text import ChoiceText, PlacedLogprob
from octavo_engine.text.tool_calls import CallDelta, Parsed, ToolCallParser


class AnswerFailed(Exception):
    """The answer cannot be completed; the text is fit to show to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """A prompt that is repeated in front of its answer, or is all that was asked for."""

    text: str
    token_ids: tuple[int, ...]
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What became certain of one choice; `finish_reason` is set on its last one."""

    index: int
    text: str
    logprobs: Sequence[PlacedLogprob]
    finish_reason: str | None
    calls: tuple[CallDelta, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()


@dataclass(slots=True)
class Whole:
    """All deltas of one choice together."""

    text: str = ""
    logprobs: list[PlacedLogprob] = field(default_factory=list)
    calls: list[CallDelta] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()

    def add(self, delta: Delta) -> None:
        """Append what became certain."""
        self.text += delta.text
        self.logprobs.extend(delta.logprobs)
        self.calls.extend(delta.calls)
        self.prompt_logprobs += delta.prompt_logprobs


@dataclass(slots=True, kw_only=True)
class Choice:
    """One sequence of the answer."""

    index: int
    request: EngineRequest
    text: ChoiceText
    hidden_ids: frozenset[int]
    """Ids that end the sequence and are no part of its text."""
    echo: Echo | None = None
    """The prompt, if it is to be repeated in front."""
    calls: ToolCallParser | None = None
    finish_reason_of_calls: str = "tool_calls"
    """Said instead of `stop` if the text had calls."""
    finish_reason: str | None = None
    num_cached_tokens: int = 0

    def add(self, event: TokenEvent) -> None:
        """Take the tokens of an event, up to the one that completes a stop string."""
        self.num_cached_tokens = max(self.num_cached_tokens, event.num_cached_tokens)
        if self.echo is not None and self.echo.is_all:
            self.finish_reason = "length" if event.finish_reason is not None else None
            return
        for position, token_id in enumerate(event.token_ids):
            logprob: TokenLogprob | None = event.logprobs[position] if event.logprobs else None
            self.text.push(token_id, logprob, hidden=self._ends(event, position))
        if self.text.stopped:
            self.finish_reason = "stop"
        elif event.finish_reason is not None:
            self.finish_reason = event.finish_reason
            self.text.finish()

    def parse(self, text: str) -> Parsed:
        """Content and calls of a piece of the text, and of all that was held back if it was the last."""
        if self.calls is None:
            return Parsed(text=text)
        parsed = self.calls.push(text)
        if self.finish_reason is None and not self.calls.full:
            return parsed
        rest = self.calls.finish()
        return Parsed(text=parsed.text + rest.text, calls=parsed.calls + rest.calls)

    @property
    def has_all_calls(self) -> bool:
        """No further call is wanted, so that the sequence may end."""
        return self.calls is not None and self.calls.full

    @property
    def reported_finish_reason(self) -> str | None:
        """As the client is told."""
        with_calls = self.calls is not None and self.calls.num_calls > 0
        return (
            self.finish_reason_of_calls if with_calls and self.finish_reason == "stop" else self.finish_reason
        )

    def _ends(self, event: TokenEvent, position: int) -> bool:
        is_last = position == len(event.token_ids) - 1
        return event.finish_reason == "stop" and is_last and event.token_ids[position] in self.hidden_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of an answer: each prompt once, the tokens of every choice."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def as_json(self) -> dict[str, object]:
        """As the OpenAI API writes it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def count_usage(choices: Sequence[Choice], choices_per_prompt: int) -> Usage:
    """Usage so far. Of several choices of one prompt the first tells what was cached before."""
    firsts = choices[::choices_per_prompt]
    return Usage(
        prompt_tokens=sum(len(choice.request.prompt_token_ids) for choice in firsts),
        completion_tokens=sum(choice.text.num_tokens for choice in choices),
        cached_tokens=sum(choice.num_cached_tokens for choice in firsts),
    )


async def deltas(submission: Submission, choices: Sequence[Choice]) -> AsyncGenerator[Delta]:
    """Deltas of all choices in the order they come; raises AnswerFailed."""
    async for choice_event in submission.events():
        delta = _advance(submission, choices[choice_event.index], choice_event.event)
        if delta is not None:
            yield delta


def _advance(submission: Submission, choice: Choice, event: TokenEvent) -> Delta | None:
    if choice.finish_reason is not None:
        return None
    if event.finish_reason == "error":
        raise AnswerFailed(500, event.error or "the engine failed")
    if event.finish_reason == "abort":
        raise AnswerFailed(503, event.error or "the request was ended")
    choice.add(event)
    text, logprobs = choice.text.take()
    parsed = choice.parse(text)
    if choice.text.stopped or choice.has_all_calls:
        choice.finish_reason = "stop"
        submission.stop(choice.index)
    found = parsed.text or parsed.calls or logprobs or event.prompt_logprobs
    if not found and choice.finish_reason is None:
        return None
    return Delta(
        index=choice.index,
        text=parsed.text,
        calls=parsed.calls,
        logprobs=logprobs,
        prompt_logprobs=event.prompt_logprobs,
        finish_reason=choice.reported_finish_reason,
    )
