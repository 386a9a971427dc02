"""asyncio's side of the engine thread: requests go in as one submission, their tokens come out.

Each sequence ends exactly once here, whatever happens first: the engine finishes it, a stop string
is found, the client leaves, the server shuts down, or the engine dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from octavo_engine.requests import REFUSED_QUEUE_FULL, EngineRequest, FinishReason, Refusal, TokenEvent
from octavo_engine.server.engine_thread import (
    Abort,
    Add,
    Answer,
    Command,
    Death,
    LoadAdapter,
    Report,
    UnloadAdapter,
)
from octavo_engine.server.openai_errors import ApiError, from_refusal, too_many_requests, unavailable
from octavo_engine.server.request_timing import RequestTimings


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """A token event, with the position of its sequence in the submission."""

    index: int
    event: TokenEvent


class Submission:
    """The sequences of one HTTP request."""

    def __init__(self, requests: Sequence[EngineRequest], client: EngineClient) -> None:
        self.requests = tuple(requests)
        self.answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._client = client
        self._events: asyncio.Queue[ChoiceEvent] = asyncio.Queue()
        self._open = {request.request_id: index for index, request in enumerate(requests)}

    async def events(self) -> AsyncIterator[ChoiceEvent]:
        """All events until every sequence has ended."""
        while self._open or not self._events.empty():
            yield await self._events.get()

    def put(self, event: TokenEvent) -> None:
        """Hand over an event of one of the sequences."""
        self._events.put_nowait(ChoiceEvent(self._open[event.request_id], event))

    def forget(self, request_id: str) -> None:
        """A sequence has ended: nothing more comes for it."""
        self._open.pop(request_id, None)

    def stop(self, index: int) -> None:
        """A stop string ended this sequence."""
        self._client.end([self.requests[index].request_id], "stop")

    def abandon(self) -> None:
        """Nobody waits for the rest any more."""
        self._client.end(list(self._open), "abort")


class EngineClient:
    """Sends commands to the engine thread and routes its reports. Lives in the event loop's thread."""

    def __init__(self, send: Callable[[Command], None], *, max_open: int, timings: RequestTimings) -> None:
        self._send = send
        self.max_open: Final = max_open
        """Sequences that may run or wait at once."""
        self._timings = timings
        self._submissions: dict[str, Submission] = {}
        self._changes: dict[str, asyncio.Future[Refusal | None]] = {}
        self._dead: str | None = None

    @property
    def num_open(self) -> int:
        """Sequences that have not ended."""
        return len(self._submissions)

    async def submit(self, requests: Sequence[EngineRequest]) -> Submission:
        """Queue the requests and wait until the engine took them on; raises ApiError if it does not."""
        self._check_room(len(requests))
        submission = Submission(requests, self)
        for request in requests:
            self._submissions[request.request_id] = submission
            self._timings.handed_over(request.request_id, request.arrival)
        self._send(Add(submission.requests))
        try:
            refusal = await submission.answer
        except BaseException:
            submission.abandon()
            raise
        if refusal is not None:
            raise from_refusal(refusal)
        return submission

    async def change(self, command: LoadAdapter | UnloadAdapter) -> Refusal | None:
        """Have the engine do this; raises ApiError if it is dead, or dies of it."""
        if self._dead is not None:
            raise unavailable(self._dead)
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._changes[command.call_id] = answer
        self._send(command)
        return await answer

    def end(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """End sequences from this side and tell the engine; those that ended already are left alone."""
        known = [request_id for request_id in request_ids if self._forget(request_id, reason)]
        if known:
            self._send(Abort(tuple(known), "stop" if reason == "stop" else "abort"))

    def end_all(self, message: str) -> None:
        """End every open sequence because the server goes away; the clients are told."""
        self._fail_all(message, "abort")

    def _fail_all(self, message: str, reason: FinishReason) -> None:
        for request_id, submission in list(self._submissions.items()):
            submission.put(
                TokenEvent(request_id=request_id, token_ids=(), finish_reason=reason, error=message)
            )
            _resolve(submission.answer, unavailable(message))
            self.end([request_id], reason)

    def receive(self, reports: Sequence[Report]) -> None:
        """Take a batch from the engine thread."""
        for report in reports:
            if isinstance(report, TokenEvent):
                self._receive_event(report)
            elif isinstance(report, Answer):
                self._receive_answer(report)
            else:
                self._receive_death(report)

    def _check_room(self, wanted: int) -> None:
        if self._dead is not None:
            raise unavailable(self._dead)
        if self.num_open + wanted > self.max_open:
            self._timings.turned_away(wanted)
            raise too_many_requests(
                f"{self.num_open} sequences run or wait already, at most {self.max_open} may; try again"
            )

    def _receive_answer(self, answer: Answer) -> None:
        change = self._changes.pop(answer.call_id, None)
        if change is not None:
            _resolve(change, answer.refusal)
        submission = self._submissions.get(answer.call_id)
        if submission is None:
            return
        for request in submission.requests:
            if answer.refusal is None:
                self._timings.accepted(request.request_id)
            else:
                self._submissions.pop(request.request_id, None)
                self._timings.refused(request.request_id)
        if answer.refusal is not None and answer.refusal.reason == REFUSED_QUEUE_FULL:
            self._timings.turned_away(len(submission.requests))
        _resolve(submission.answer, answer.refusal)

    def _receive_event(self, event: TokenEvent) -> None:
        submission = self._submissions.get(event.request_id)
        if submission is None:
            return
        self._timings.received(event)
        submission.put(event)
        if event.finish_reason is not None:
            self._forget(event.request_id, event.finish_reason)

    def _receive_death(self, death: Death) -> None:
        self._dead = death.message
        while self._changes:
            _resolve(self._changes.popitem()[1], unavailable(death.message))
        self._fail_all(death.message, "error")

    def _forget(self, request_id: str, reason: FinishReason) -> bool:
        submission = self._submissions.pop(request_id, None)
        if submission is None:
            return False
        submission.forget(request_id)
        self._timings.finished_by(request_id, reason)
        return True


def _resolve(answer: asyncio.Future[Refusal | None], outcome: Refusal | ApiError | None) -> None:
    if answer.done():
        return
    if isinstance(outcome, ApiError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
