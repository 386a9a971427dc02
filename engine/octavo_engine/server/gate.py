"""Around every request: its id, its key, the drain, its line in the log, and the size of its body.

Plain ASGI, so that a client that leaves is seen by the routes (function-style middleware can hide it).
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo import engine_contract as contract
from octavo_engine.server.access import Access
from octavo_engine.server.connection import ClientLeft
from octavo_engine.server.lifecycle import Lifecycle
from octavo_engine.server.openai_errors import ApiError, unavailable
from octavo_engine.server.request_log import EXCHANGE, Exchange, RequestLog

ALWAYS_SERVED: Final = frozenset(
    {contract.HEALTH_PATH, contract.READY_PATH, contract.METRICS_PATH, contract.VERSION_PATH}
)
"""Probes and scrapes are answered to the end and are not work to wait for."""

REQUEST_ID_HEADER: Final = "x-request-id"
ACCEPTABLE_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""A client's id is repeated in a header and in logs, so it must be harmless there."""


class Gate:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, *, lifecycle: Lifecycle, access: Access, log: RequestLog) -> None:
        self._app = app
        self._lifecycle = lifecycle
        self._access = access
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(
            request_id=_request_id(Headers(scope=scope)), method=scope["method"], path=_path(scope)
        )
        sender = self._with_headers(exchange, send)
        if scope["path"] in ALWAYS_SERVED:
            await self._app(scope, receive, sender)
            return
        scope[EXCHANGE] = exchange
        try:
            await self._admit(scope, receive, sender)
        finally:
            self._log.ended(exchange)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._access.refusal(Headers(scope=scope))
        if refusal is None and self._lifecycle.refuses:
            refusal = unavailable("the server is shutting down")
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        self._lifecycle.num_in_flight += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._lifecycle.num_in_flight -= 1

    def _with_headers(self, exchange: Exchange, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = exchange.request_id
                if self._lifecycle.is_draining:
                    headers["Connection"] = "close"
            await send(message)
            exchange.sent(
                message["type"], status=message.get("status"), is_last=not message.get("more_body", False)
            )

        return send_with_headers


def _path(scope: Scope) -> str:
    """As it was sent, percent-encoded: no line break of it gets into a log."""
    return (scope.get("raw_path") or b"").decode("ascii", "backslashreplace").partition("?")[0]


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
