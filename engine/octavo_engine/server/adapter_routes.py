"""Loading and unloading LoRA adapters over HTTP, under vLLM's paths.

Only with `--allow-runtime-lora`: a path that a client names is read with the server's rights.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from octavo.errors import InvalidSpec
from octavo_engine.config import require_adapter_name
from octavo_engine.server.engine_thread import LoadAdapter, UnloadAdapter
from octavo_engine.server.gate import read_body
from octavo_engine.server.openai_errors import bad_request, from_refusal
from octavo_engine.server.openapi import described_change
from octavo_engine.server.schema import LoadAdapterBody, UnloadAdapterBody, parse_body
from octavo_engine.server.serving import Serving


def build_adapter_routes(serving: Serving) -> APIRouter:
    """Routes that change which adapters are served."""
    router = APIRouter()

    @router.post("/v1/load_lora_adapter", **described_change(LoadAdapterBody))
    async def load_lora_adapter(request: Request) -> Response:
        body = parse_body(LoadAdapterBody, await read_body(request, serving.max_body_bytes))
        try:
            require_adapter_name(body.lora_name, served_model_name=serving.identity.model_name)
        except InvalidSpec as error:
            raise bad_request(f"lora_name: {error}", param="lora_name") from error
        command = LoadAdapter(name=body.lora_name, folder=Path(body.lora_path))
        return await _change(serving, command, f"LoRA adapter '{body.lora_name}' added successfully.")

    @router.post("/v1/unload_lora_adapter", **described_change(UnloadAdapterBody))
    async def unload_lora_adapter(request: Request) -> Response:
        body = parse_body(UnloadAdapterBody, await read_body(request, serving.max_body_bytes))
        command = UnloadAdapter(name=body.lora_name)
        return await _change(serving, command, f"LoRA adapter '{body.lora_name}' removed successfully.")

    return router


async def _change(serving: Serving, command: LoadAdapter | UnloadAdapter, done: str) -> Response:
    refusal = await serving.client.change(command)
    if refusal is not None:
        raise from_refusal(refusal)
    return PlainTextResponse(f"Success: {done}")
