"""Around every request: its id, the drain, and the size of its body. Plain ASGI, so that a client that
leaves is seen by the routes (function-style middleware can hide it from them).
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo import engine_contract as contract
from octavo_engine.server.connection import ClientLeft
from octavo_engine.server.lifecycle import Lifecycle
from octavo_engine.server.openai_errors import ApiError, unavailable

ALWAYS_SERVED: Final = frozenset(
    {contract.HEALTH_PATH, contract.READY_PATH, contract.METRICS_PATH, contract.VERSION_PATH}
)
"""Probes and scrapes are answered to the end and are not work to wait for."""

REQUEST_ID_HEADER: Final = "x-request-id"
ACCEPTABLE_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""A client's id is repeated in a header and in logs, so it must be harmless there."""


class Gate:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it while draining."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = self._with_headers(_request_id(Headers(scope=scope)), send)
        if scope["path"] in ALWAYS_SERVED:
            await self._app(scope, receive, sender)
        elif self._lifecycle.refuses:
            await unavailable("the server is shutting down").response()(scope, receive, sender)
        else:
            await self._counted(scope, receive, sender)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._lifecycle.num_in_flight += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._lifecycle.num_in_flight -= 1

    def _with_headers(self, request_id: str, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = request_id
                if self._lifecycle.is_draining:
                    headers["Connection"] = "close"
            await send(message)

        return send_with_headers


def _request_id(headers: Headers) -> str:
    """The client's, if it sent a harmless one. It names the exchange only: the engine has ids of its own."""
    sent = headers.get(REQUEST_ID_HEADER, "")
    return sent if ACCEPTABLE_ID.fullmatch(sent) else uuid.uuid4().hex


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body; raises ApiError 413 as soon as it is known to be too large."""
    too_large = ApiError(413, f"the body is larger than {max_bytes} bytes", code="body_too_large")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise too_large
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientLeft from error
    return b"".join(chunks)
