"""The ASGI application: OpenAI routes, probes, metrics, and errors in one form."""

from __future__ import annotations

import logging
from typing import Final

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from octavo import engine_contract as contract
from octavo_engine.server.adapter_routes import build_adapter_routes
from octavo_engine.server.connection import ClientLeft
from octavo_engine.server.gate import Gate
from octavo_engine.server.openai_errors import ApiError
from octavo_engine.server.openapi import DescribedApp, described, plain_text
from octavo_engine.server.routes import build_routes
from octavo_engine.server.serving import Serving
from octavo_engine.what_runs import what_runs

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST: Final = 499
"""Nobody reads this answer; the number is for logs."""
METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def build_app(serving: Serving) -> ASGIApp:
    """The whole application for one served model."""
    app = DescribedApp(
        model_names=lambda: serving.model_names,
        vocab_size=serving.facts.vocab_size,
        title="Octavo engine",
        version=serving.identity.version,
    )
    app.include_router(build_routes(serving))
    if serving.allows_runtime_adapters:
        app.include_router(build_adapter_routes(serving))
    app.include_router(build_probes(serving))
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(ClientLeft, _client_left)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return Gate(app, lifecycle=serving.lifecycle, access=serving.access, log=serving.request_log)


def build_probes(serving: Serving) -> APIRouter:
    """What the platform asks: alive, ready, how busy, which build."""
    router = APIRouter()

    @router.get(contract.HEALTH_PATH, **plain_text(200, 503))
    async def health() -> Response:
        return _probe(serving.unhealthy_because())

    @router.get(contract.READY_PATH, **plain_text(200, 503))
    async def ready() -> Response:
        draining = serving.lifecycle.stage.value if serving.lifecycle.is_draining else None
        return _probe(serving.unhealthy_because() or draining)

    @router.get(contract.METRICS_PATH, **plain_text(200))
    async def metrics() -> Response:
        return Response(serving.metrics_page(), media_type=METRICS_MEDIA_TYPE)

    @router.get(contract.VERSION_PATH, **described("Version"))
    async def version() -> Response:
        return JSONResponse(what_runs(serving.identity, serving.facts))

    return router


def _probe(trouble: str | None) -> Response:
    return PlainTextResponse("ok\n" if trouble is None else f"{trouble}\n", 200 if trouble is None else 503)


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _client_left(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def _unexpected_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ApiError(500, "internal error; the server's log has the details", code="internal_error").response()
