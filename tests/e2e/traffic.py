"""Clients that never stop and never try again: streaming and not, on kept-alive and on fresh connections."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.demo.chat import Connect, RequestFailed, parse_events

PATH = "/v1/chat/completions"
KINDS = [(stream, kept) for stream in (False, True) for kept in (False, True)]
PAUSE_SECONDS = 0.2
"""Between two requests of one client: two small engines share two cores."""


@dataclass(slots=True, kw_only=True)
class NeverStopping:
    """One client."""

    connect: Connect
    model: str
    stream: bool
    kept: bool
    question: str = "Say hello."
    max_tokens: int = 4
    rest_ratio: float = 0.0
    """Rest after an answer, for the time that it took."""
    answered: list[tuple[float, str]] = field(default_factory=list)
    """When each answer ended, and who gave it."""
    failures: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="never-stopping", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(timeout=180)

    def await_answer(self, seconds: float = 60.0) -> None:
        """Until it has had one more."""
        had, deadline = len(self.answered), time.monotonic() + seconds
        while len(self.answered) <= had:
            assert time.monotonic() < deadline, f"a client has no answer; its failures: {self.failures}"
            time.sleep(0.2)

    def _run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self._stopping.is_set():
            connection = connection or self.connect()
            began = time.monotonic()
            try:
                fingerprint = self._ask(connection)
                self.answered.append((time.monotonic(), fingerprint))
            except (RequestFailed, OSError, http.client.HTTPException, ValueError, KeyError) as failed:
                words = f"{time.strftime('%H:%M:%S')} stream={self.stream} kept={self.kept}"
                self.failures.append(f"{words}: {type(failed).__name__} {failed}")
                connection.close()
                connection = None
            if connection is not None and (not self.kept or connection.sock is None):
                connection.close()
                connection = None
            self._stopping.wait(PAUSE_SECONDS + self.rest_ratio * (time.monotonic() - began))
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> str:
        messages = [{"role": "user", "content": self.question}]
        body = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens, "temperature": 0}
        headers = {"Content-Type": "application/json"}
        if not self.kept:
            headers["Connection"] = "close"
        connection.request("POST", PATH, json.dumps({**body, "stream": self.stream}), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RequestFailed(f"{response.status} {response.read().decode(errors='replace')[:300]}")
        return read_stream(response) if self.stream else read_whole(response)


def read_whole(response: http.client.HTTPResponse) -> str:
    answer: dict[str, Any] = json.loads(response.read())
    if answer["choices"][0]["finish_reason"] not in ("stop", "length"):
        raise RequestFailed(f"ended by {answer['choices'][0]['finish_reason']}")
    return str(answer["system_fingerprint"])


def read_stream(response: http.client.HTTPResponse) -> str:
    """To the very end: a stream without a reason to end, or without [DONE], was cut off."""
    chunks = list(parse_events(response))
    response.read()
    if not any(chunk.finish_reason in ("stop", "length") for chunk in chunks):
        raise RequestFailed(f"cut off after {len(chunks)} chunks")
    return next(chunk.fingerprint for chunk in chunks if chunk.fingerprint)


@dataclass(frozen=True, slots=True)
class Traffic:
    """All kinds of clients at once."""

    clients: tuple[NeverStopping, ...]

    @property
    def failures(self) -> list[str]:
        return [failure for client in self.clients for failure in client.failures]

    def since(self, moment: float) -> list[str]:
        """Who answered after a moment, in order."""
        answers = sorted(answer for client in self.clients for answer in client.answered)
        return [fingerprint for when, fingerprint in answers if when >= moment]

    def await_answers(self, seconds: float = 60.0) -> None:
        """Until each client has had one more answer."""
        for client in self.clients:
            client.await_answer(seconds)


@contextmanager
def traffic_on(connect: Connect, model: str) -> Iterator[Traffic]:
    clients = tuple(
        NeverStopping(connect=connect, model=model, stream=stream, kept=kept) for stream, kept in KINDS
    )
    for client in clients:
        client.start()
    try:
        yield Traffic(clients)
    finally:
        for client in clients:
            client.stop()
        for client in clients:
            client.join()


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Clients of long answers that come one by one, every other one with a stream."""

    connect: Connect
    model: str
    max_tokens: int
    clients: list[NeverStopping] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        return [failure for client in self.clients for failure in client.failures]

    def grow(self, number: int = 1) -> None:
        for _ in range(number):
            client = NeverStopping(
                connect=self.connect,
                model=self.model,
                stream=len(self.clients) % 2 == 0,
                kept=False,
                question="Tell me a long story.",
                max_tokens=self.max_tokens,
            )
            self.clients.append(client)
            client.start()

    def shrink(self, number: int) -> None:
        """Only the first ones stay; what the others asked for last is still answered."""
        for client in self.clients[number:]:
            client.stop()

    def rest(self, ratio: float) -> None:
        """All that are there now: after each answer, for so many times what it took."""
        for client in self.clients:
            client.rest_ratio = ratio


@contextmanager
def crowd_on(connect: Connect, model: str, *, max_tokens: int) -> Iterator[Crowd]:
    crowd = Crowd(connect=connect, model=model, max_tokens=max_tokens)
    try:
        yield crowd
    finally:
        crowd.shrink(0)
        for client in crowd.clients:
            client.join()
