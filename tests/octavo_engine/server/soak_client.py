"""A client that behaves in every way that clients do: stays, reads slowly, or leaves at any moment.

It speaks HTTP over plain sockets, so that the moment at which a connection ends is its own choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from tests.octavo_engine.server.running_server import MODEL, parse_event

ANSWER_SECONDS = 60.0
SMALL_BUFFER = 4096
HEAD = "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"


class Manner(Enum):
    """What a client does."""

    STAYS = "reads the whole answer"
    READS_SLOWLY = "reads a little at a time"
    LEAVES_IN_THE_BODY = "closes before its own request is complete"
    LEAVES_AT_ONCE = "closes right after its request"
    LEAVES_LATER = "closes after a moment without reading"
    LEAVES_IN_THE_ANSWER = "closes after some of the stream"
    SAYS_NONSENSE = "sends what is no request"


STAYING = (Manner.STAYS, Manner.READS_SLOWLY)
LEAVING = (
    Manner.LEAVES_IN_THE_BODY,
    Manner.LEAVES_AT_ONCE,
    Manner.LEAVES_LATER,
    Manner.LEAVES_IN_THE_ANSWER,
)
MANNERS = (*[Manner.STAYS] * 12, *[Manner.READS_SLOWLY] * 2, *LEAVING, Manner.SAYS_NONSENSE)


@dataclass(frozen=True)
class Got:
    """What a client has of an answer; the texts by choice."""

    status: int | None
    texts: dict[int, str]
    is_whole: bool


NOTHING = Got(status=None, texts={}, is_whole=False)


@dataclass(frozen=True)
class Caller:
    """Calls one server; a connection for each request."""

    host: str
    port: int

    async def call(self, body: dict[str, Any], manner: Manner, random: Random) -> Got:
        """One request in one manner. `random` chooses the moments."""
        if manner is Manner.SAYS_NONSENSE:
            body = random.choice([{**body, "temperature": -1}, {**body, "surprise": 1}, {"model": MODEL}])
        content = json.dumps({"model": MODEL, **body}).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=SMALL_BUFFER)
        try:
            head = HEAD.format(path=_path(body), length=len(content)).encode()
            return await asyncio.wait_for(
                self._converse(reader, writer, head, content, manner, random), timeout=ANSWER_SECONDS
            )
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _converse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
        content: bytes,
        manner: Manner,
        random: Random,
    ) -> Got:
        sent = content[: random.randrange(len(content))] if manner is Manner.LEAVES_IN_THE_BODY else content
        writer.write(head + sent)
        await writer.drain()
        if manner in (Manner.LEAVES_IN_THE_BODY, Manner.LEAVES_AT_ONCE):
            return NOTHING
        if manner is Manner.LEAVES_LATER:
            await asyncio.sleep(random.uniform(0, 0.05))
            return NOTHING
        return await _read_answer(reader, manner, random)


def _path(body: dict[str, Any]) -> str:
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def _text(choice: dict[str, Any]) -> str:
    """Of a completion, a chat, or a piece of either."""
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("message") or choice["delta"]).get("content") or "")


async def _read_answer(reader: asyncio.StreamReader, manner: Manner, random: Random) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = int(head.split()[1])
    if "text/event-stream" in head:
        most = random.randrange(8) if manner is Manner.LEAVES_IN_THE_ANSWER else None
        return await _read_events(reader, status, most=most, pause=manner is Manner.READS_SLOWLY)
    answer = json.loads(await reader.read(-1))
    texts = {choice["index"]: _text(choice) for choice in answer.get("choices", ())}
    return Got(status=status, texts=texts, is_whole=True)


async def _read_events(reader: asyncio.StreamReader, status: int, *, most: int | None, pause: bool) -> Got:
    texts: dict[int, str] = {}
    count = 0
    async for line in _lines_of_chunks(reader):
        event = parse_event(line)
        if event == "[DONE]":
            return Got(status=status, texts=texts, is_whole=True)
        assert "error" not in event, event
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + _text(choice)
        count += 1
        if count == most:
            break
        if pause:
            await asyncio.sleep(0.005)
    return Got(status=status, texts=texts, is_whole=False)


async def _lines_of_chunks(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of a body in chunked transfer coding; chunks need not end with a line."""
    rest = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line:
                yield line.decode()
