"""The choices of one answer: tokens of every sequence become text deltas, until all have ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from octavo_engine.requests import EngineRequest, TokenEvent, TokenLogprob
from octavo_engine.server.submissions import Submission
from octavo_engine.text.choice_text import ChoiceText, PlacedLogprob


class AnswerFailed(Exception):
    """The answer cannot be completed; the text is fit to show to the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What became certain of one choice; `finish_reason` is set on its last one."""

    index: int
    text: str
    logprobs: Sequence[PlacedLogprob]
    finish_reason: str | None


@dataclass(slots=True, kw_only=True)
class Choice:
    """One sequence of the answer."""

    index: int
    request: EngineRequest
    text: ChoiceText
    hidden_ids: frozenset[int]
    """Ids that end the sequence and are no part of its text."""
    echo: str = ""
    """The prompt, if it is to be repeated in front."""
    finish_reason: str | None = None
    num_cached_tokens: int = 0

    def add(self, event: TokenEvent) -> None:
        """Take the tokens of an event, up to the one that completes a stop string."""
        self.num_cached_tokens = max(self.num_cached_tokens, event.num_cached_tokens)
        for position, token_id in enumerate(event.token_ids):
            logprob: TokenLogprob | None = event.logprobs[position] if event.logprobs else None
            self.text.push(token_id, logprob, hidden=self._ends(event, position))
        if self.text.stopped:
            self.finish_reason = "stop"
        elif event.finish_reason is not None:
            self.finish_reason = event.finish_reason
            self.text.finish()

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
    if choice.text.stopped:
        submission.stop(choice.index)
    text, logprobs = choice.text.take()
    if not text and not logprobs and choice.finish_reason is None:
        return None
    return Delta(index=choice.index, text=text, logprobs=logprobs, finish_reason=choice.finish_reason)
