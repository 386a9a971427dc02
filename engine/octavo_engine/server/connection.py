"""Whether the client is still there.

Frameworks cancel only some handlers when it leaves; here all work for it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")

NO_TRANSFORM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
"""A proxy must pass events on as they come."""


class ClientLeft(Exception):
    """The connection was closed before the answer was complete."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Do the work; if the client leaves, cancel it, wait for its cleaning up, and raise ClientLeft."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeft
    finally:
        await _cancel(working)
        await _cancel(watching)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Future[Any]) -> None:
    if task.done():
        return
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


class EventStream(Response):
    """Server-sent events. When the client leaves, sent to or not, the source is closed at once."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], on_close: Callable[[], None]) -> None:
        self._events = events
        self._on_close = on_close
        self.status_code = 200
        self.background = None
        self.init_headers(NO_TRANSFORM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the source ends or the client leaves."""
        try:
            with contextlib.suppress(ClientLeft):
                await while_connected(receive, self._send_all(send))
        finally:
            self._on_close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
