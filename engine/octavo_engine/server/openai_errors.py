"""Errors as the OpenAI API writes them: a status and `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from octavo_engine.requests import REFUSED_QUEUE_FULL, REFUSED_UNKNOWN_ADAPTER, Refusal

TYPE_OF_STATUS: Final = {404: "not_found_error", 429: "rate_limit_error"}
RETRY_AFTER_SECONDS: Final = 2


class ApiError(Exception):
    """A request that is answered by an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """The JSON body."""
        return error_body(self.status, self.message, param=self.param, code=self.code)

    def response(self) -> Response:
        """The whole HTTP answer."""
        content = json.dumps(self.body())
        return Response(content, self.status, headers=self.headers, media_type="application/json")


def error_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """The body for a status; also what an event of a broken stream carries."""
    default = "internal_server_error" if status >= 500 else "invalid_request_error"
    kind = TYPE_OF_STATUS.get(status, default)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the client must change the request."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str) -> ApiError:
    """503: another replica, or this one later."""
    return ApiError(
        503, message, code="service_unavailable", headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
    )


def too_many_requests(message: str) -> ApiError:
    """429: the queue is full."""
    return ApiError(429, message, code="queue_full", headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


def from_refusal(refusal: Refusal) -> ApiError:
    """The engine's own "no", as the client sees it."""
    if refusal.reason == REFUSED_QUEUE_FULL:
        return too_many_requests(refusal.message)
    if refusal.reason == REFUSED_UNKNOWN_ADAPTER:
        return ApiError(404, refusal.message, code="model_not_found")
    code = "context_length_exceeded" if refusal.reason == "ContextTooLong" else refusal.reason
    return bad_request(refusal.message, code=code)
