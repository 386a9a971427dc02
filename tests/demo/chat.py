"""Talk to an engine over its OpenAI-compatible API with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Connect = Callable[[], http.client.HTTPConnection]
SAMPLE_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)$")


class RequestFailed(Exception):
    """The server answered with an error, or the connection broke before the answer's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One piece of a streamed answer."""

    text: str
    fingerprint: str
    finish_reason: str | None


def over_loopback(port: int, timeout: float = 120) -> Connect:
    return lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


def get_text(connect: Connect, path: str) -> str:
    return exchange(connect, "GET", path)


def post_json(connect: Connect, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(exchange(connect, "POST", path, body))
    return answer


def exchange(connect: Connect, method: str, path: str, body: Mapping[str, object] | None = None) -> str:
    connection = connect()
    try:
        connection.request(method, path, None if body is None else json.dumps(body), JSON_HEADERS)
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException) as broken:
        raise RequestFailed(f"{method} {path}: {type(broken).__name__} {broken}") from broken
    finally:
        connection.close()
    if response.status >= 400:
        raise RequestFailed(f"{method} {path}: {response.status} {text}")
    return text


def stream_chat(connect: Connect, body: Mapping[str, object]) -> Iterator[Chunk]:
    """The answer to one chat request, piece by piece as the engine sends it."""
    connection = connect()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), JSON_HEADERS)
        response = connection.getresponse()
        if response.status >= 400:
            raise RequestFailed(f"chat: {response.status} {response.read().decode()}")
        yield from parse_events(response)
    finally:
        connection.close()


def parse_events(response: http.client.HTTPResponse) -> Iterator[Chunk]:
    for raw in response:
        line = raw.decode().strip()
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield from parse_chunk(json.loads(line.removeprefix("data: ")))
    raise RequestFailed("chat: the stream broke off before [DONE]")


def parse_chunk(event: Mapping[str, Any]) -> Iterator[Chunk]:
    for choice in event["choices"]:
        yield Chunk(
            text=choice["delta"].get("content") or "",
            fingerprint=event.get("system_fingerprint") or "",
            finish_reason=choice.get("finish_reason"),
        )


def read_metrics(connect: Connect) -> dict[str, float]:
    """Every sample of /metrics by name, those of several label sets added up."""
    samples: dict[str, float] = {}
    for line in get_text(connect, "/metrics").splitlines():
        if found := SAMPLE_LINE.match(line):
            samples[found[1]] = samples.get(found[1], 0.0) + float(found[3])
    return samples


JSON_HEADERS = {"Content-Type": "application/json", "Connection": "close"}
