"""The one thread that owns the engine and all its mutable state.

asyncio talks to it by an inbox of commands; it answers by batches of reports, one hand-over to the
event loop per step. With nothing to do it blocks on the inbox, so that an idle server takes no CPU.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from octavo.errors import OctavoError
from octavo_engine.engine_facts import AdapterFacts, EngineFacts, EngineStats
from octavo_engine.requests import REFUSED_INVALID, EngineRequest, Refusal, TokenEvent
from octavo_engine.server.engine_port import AbortReason, Engine

logger = logging.getLogger(__name__)

STALL_SECONDS: Final = 120.0
"""A single step that takes longer than this means a hung engine, not a slow one."""


@dataclass(frozen=True, slots=True)
class Add:
    """Take these requests on, all of them or none."""

    requests: tuple[EngineRequest, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """End these requests; unknown ids are fine."""

    request_ids: tuple[str, ...]
    reason: AbortReason


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAdapter:
    """Read a LoRA adapter and serve it; steps wait meanwhile."""

    name: str
    folder: Path
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadAdapter:
    """Serve a LoRA adapter no longer."""

    name: str
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the loop."""


Command = Add | Abort | LoadAdapter | UnloadAdapter | Stop


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command; comes before any token of an `Add`."""

    call_id: str
    """Of an `Add`, its first request's id."""
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Death:
    """The loop has ended by an error; nothing more will come."""

    message: str


Report = Answer | TokenEvent | Death
Deliver = Callable[[Sequence[Report]], None]
"""Takes a batch of reports from the engine thread over to the event loop."""


class EngineThread:
    """Loads an engine, drives it, and says whether it is alive."""

    def __init__(
        self, load: Callable[[], Engine], deliver: Deliver, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._load = load
        self._deliver = deliver
        self._stall_seconds = stall_seconds
        self._inbox: SimpleQueue[Command] = SimpleQueue()
        self._loaded: Future[EngineFacts] = Future()
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._busy_since: float | None = None
        self._stats: EngineStats | None = None
        self._adapters: tuple[AdapterFacts, ...] = ()

    def start(self) -> Future[EngineFacts]:
        """Begin loading; the future gives the facts, or the error that loading met."""
        self._thread.start()
        return self._loaded

    def send(self, command: Command) -> None:
        """Put a command into the inbox; from any thread."""
        self._inbox.put(command)

    def join(self, timeout: float) -> None:
        """Wait for the loop's end after `Stop`."""
        self._thread.join(timeout)

    @property
    def stats(self) -> EngineStats | None:
        """As of the end of the last turn of the loop; None before loading is done."""
        return self._stats

    @property
    def adapters(self) -> tuple[AdapterFacts, ...]:
        """Those that requests can name, as of the end of the last turn of the loop."""
        return self._adapters

    def unhealthy_because(self) -> str | None:
        """Why the engine cannot be trusted to answer, or None. An idle engine is healthy."""
        if not self._thread.is_alive():
            return "the engine thread has ended"
        since = self._busy_since
        if since is not None and time.monotonic() - since > self._stall_seconds:
            return f"the engine has not finished a step for more than {self._stall_seconds:g} s"
        return None

    def _run(self) -> None:
        try:
            engine = self._load()
            self._stats, self._adapters = engine.stats(), engine.adapters
        except BaseException as error:
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(engine.facts)
        try:
            self._loop(engine)
        except BaseException as error:
            logger.exception("the engine has failed; running requests end with an error")
            self._deliver([Death(f"the engine has failed: {type(error).__name__}")])

    def _loop(self, engine: Engine) -> None:
        while True:
            commands = self._take_commands(wait=not engine.has_work())
            self._busy_since = time.monotonic()
            if any(isinstance(command, Stop) for command in commands):
                return
            reports: list[Report] = [
                report for command in commands if (report := _obey(engine, command)) is not None
            ]
            if engine.has_work():
                reports.extend(engine.step(time.monotonic()))
            self._stats, self._adapters = engine.stats(), engine.adapters
            if reports:
                self._deliver(reports)

    def _take_commands(self, *, wait: bool) -> list[Command]:
        commands: list[Command] = []
        if wait:
            self._busy_since = None
            commands.append(self._inbox.get())
        while True:
            try:
                commands.append(self._inbox.get_nowait())
            except Empty:
                return commands


def _obey(engine: Engine, command: Command) -> Answer | None:
    if isinstance(command, Add):
        return Answer(command.requests[0].request_id, _add_all(engine, command.requests))
    if isinstance(command, LoadAdapter):
        return Answer(command.call_id, engine.load_adapter(command.name, command.folder))
    if isinstance(command, UnloadAdapter):
        return Answer(command.call_id, engine.unload_adapter(command.name))
    if isinstance(command, Abort):
        for request_id in command.request_ids:
            engine.abort(request_id, command.reason)
    return None


def _add_all(engine: Engine, requests: tuple[EngineRequest, ...]) -> Refusal | None:
    for position, request in enumerate(requests):
        refusal = _add(engine, request)
        if refusal is not None:
            for added in requests[:position]:
                engine.abort(added.request_id)
            return refusal
    return None


def _add(engine: Engine, request: EngineRequest) -> Refusal | None:
    try:
        return engine.add_request(request)
    except OctavoError as error:
        return Refusal(REFUSED_INVALID, str(error))
