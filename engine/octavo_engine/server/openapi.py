"""What /openapi.json says: bodies are parsed by the routes, not by the framework, so they are told here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from octavo_engine.server.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    LoadAdapterBody,
    TokenizeBody,
    UnloadAdapterBody,
)
from octavo_engine.server.wire_schemas import TOKEN_ID

MODEL_BODIES: Final[tuple[type[BaseModel], ...]] = (CompletionBody, ChatBody, TokenizeBody, DetokenizeBody)
"""Those that name a model."""
ADAPTER_BODIES: Final[tuple[type[BaseModel], ...]] = (LoadAdapterBody, UnloadAdapterBody)
COMPONENTS: Final = "#/components/schemas/"

ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


EVENT_SCHEMA: Final = {
    "description": "Its data is the JSON of a piece of the answer, or of an error; at the end [DONE]",
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}},
}


def _answer_schema(kind: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "system_fingerprint", "choices", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": kind},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "system_fingerprint": {"type": ["string", "null"]},
            "choices": {"type": "array", "items": choice},
            "usage": {
                "type": "object",
                "required": list(counts),
                "properties": {name: {"type": "integer"} for name in counts},
            },
        },
    }


def _choice_schema(finish_reasons: list[str], content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["index", "logprobs", "finish_reason", *content],
        "properties": {
            "index": {"type": "integer"},
            "logprobs": {"type": ["object", "null"]},
            "finish_reason": {"enum": finish_reasons},
            **content,
        },
    }


MESSAGE_SCHEMA: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": ["string", "null"]},
        "tool_calls": {"type": "array", "items": {"type": "object", "required": ["id", "type", "function"]}},
    },
}
MODEL_SCHEMA: Final = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by", "max_model_len", "revision"],
    "properties": {"id": {"type": "string"}, "object": {"const": "model"}},
}
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Error": ERROR_SCHEMA,
    "Completion": _answer_schema(
        "text_completion", _choice_schema(["stop", "length"], {"text": {"type": "string"}})
    ),
    "ChatCompletion": _answer_schema(
        "chat.completion", _choice_schema(["stop", "length", "tool_calls"], {"message": MESSAGE_SCHEMA})
    ),
    "Model": MODEL_SCHEMA,
    "ModelList": {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"data": {"type": "array", "items": {"$ref": f"{COMPONENTS}Model"}}},
    },
    "Tokens": {
        "type": "object",
        "required": ["tokens", "count", "max_model_len"],
        "properties": {"tokens": {"type": "array", "items": {"type": "integer"}}},
    },
    "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
    "Version": {"type": "object", "required": ["version", "model", "revision", "device", "dtype", "kernels"]},
}

REFUSALS: Final[Mapping[int, str]] = {
    400: "The request is wrong; the error names the field",
    401: "An API key is asked for, and none that the server knows was sent",
    404: "No such model",
    413: "The body is too large",
    429: "The queue is full; Retry-After says when to come again",
    500: "This answer failed",
    503: "The server is shutting down, or its engine has died",
}


def described(
    answer: str, *refusals: int, body: type[BaseModel] | None = None, streams: bool = False
) -> dict[str, Any]:
    """A route's keyword arguments: its body, its answer and the refusals that it may give."""
    content: dict[str, Any] = {"application/json": {"schema": _ref(answer)}}
    if streams:
        content["text/event-stream"] = {"schema": EVENT_SCHEMA}
    responses: dict[int, Any] = {200: {"description": "The answer", "content": content}}
    for status in refusals:
        refusal = {"application/json": {"schema": _ref("Error")}}
        responses[status] = {"description": REFUSALS[status], "content": refusal}
    if body is None:
        return {"responses": responses}
    sent = {"required": True, "content": {"application/json": {"schema": _ref(body.__name__)}}}
    return {"responses": responses, "openapi_extra": {"requestBody": sent}}


def described_answer(answer: str, body: type[BaseModel]) -> dict[str, Any]:
    """Keyword arguments of a route that generates, whole or as a stream."""
    return described(answer, 400, 401, 404, 413, 429, 500, 503, body=body, streams=True)


def described_text(answer: str, body: type[BaseModel]) -> dict[str, Any]:
    """Keyword arguments of a route that only needs the tokenizer."""
    return described(answer, 400, 401, 404, 413, 503, body=body)


def described_change(body: type[BaseModel]) -> dict[str, Any]:
    """Keyword arguments of a route that changes which adapters are served, and says so in words."""
    described_body = described("Error", 400, 401, 404, 413, 503, body=body)
    described_body["responses"][200] = plain_text(200)["responses"][200]
    return described_body


def plain_text(*statuses: int) -> dict[str, Any]:
    """Keyword arguments of a route that answers plain text."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {"responses": {status: {"description": "In words", "content": content} for status in statuses}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": COMPONENTS + name}


class DescribedApp(FastAPI):
    """An application whose /openapi.json has the bodies, with the names that can be asked for now."""

    def __init__(
        self, *, model_names: Callable[[], list[str]], vocab_size: int, title: str, version: str
    ) -> None:
        super().__init__(title=title, version=version)
        self._model_names = model_names
        self._vocab_size = vocab_size

    def openapi(self) -> dict[str, Any]:
        """The framework's own document, completed once; the names anew each time."""
        if self.openapi_schema is None:
            self.openapi_schema = self._completed(super().openapi())
        for body in MODEL_BODIES:
            schema = self.openapi_schema["components"]["schemas"][body.__name__]
            schema["properties"]["model"] = {"type": "string", "enum": self._model_names()}
        return self.openapi_schema

    def _completed(self, document: dict[str, Any]) -> dict[str, Any]:
        _, bodies = models_json_schema(
            [(body, "validation") for body in (*MODEL_BODIES, *ADAPTER_BODIES)],
            ref_template=COMPONENTS + "{model}",
        )
        token_id = {"type": "integer", "minimum": 0, "maximum": self._vocab_size - 1}
        document["components"] = {"schemas": {**bodies["$defs"], **ANSWERS, TOKEN_ID: token_id}}
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # the framework's own, which is never given
        return document
