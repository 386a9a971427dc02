"""The form that a request wants its answer in, as a grammar: `response_format` and `structured_outputs`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.server.schema import (
    ChatBody,
    JsonSchemaFormat,
    SamplingBody,
    StructuredOutputs,
    TextFormat,
)
from octavo_engine.text.grammar import (
    Grammar,
    GrammarCompiler,
    GrammarInvalid,
    choice_body,
    json_body,
    regex_body,
)

ANY_OBJECT: Final = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedForm:
    """A grammar in Lark, and the request's field to blame if it cannot be compiled."""

    lark: str
    param: str
    body: str | None = None
    """The right side of the grammar's one rule, where it can stand inside another grammar."""


def _form(body: str, param: str) -> WantedForm:
    return WantedForm(lark=f"start: {body}", param=param, body=body)


def wanted_form(body: SamplingBody) -> WantedForm | None:
    """What the request asks for, if anything; raises ApiError if it contradicts itself."""
    response_format = body.response_format if isinstance(body, ChatBody) else None
    if isinstance(response_format, TextFormat):
        response_format = None
    if response_format is not None and body.structured_outputs is not None:
        raise bad_request(
            "structured_outputs: contradicts response_format; send one", param="structured_outputs"
        )
    if isinstance(response_format, JsonSchemaFormat):
        schema = response_format.json_schema.json_schema
        return _form(json_body(ANY_OBJECT if schema is None else schema), "response_format")
    if response_format is not None:
        return _form(json_body(ANY_OBJECT), "response_format")
    return None if body.structured_outputs is None else _from_structured_outputs(body.structured_outputs)


def _from_structured_outputs(wanted: StructuredOutputs) -> WantedForm:
    given = [
        name for name in ("json_schema", "regex", "choice", "grammar") if getattr(wanted, name) is not None
    ]
    if len(given) != 1:
        raise bad_request(
            "structured_outputs: give exactly one of json, regex, choice and grammar",
            param="structured_outputs",
            code="invalid_value",
        )
    if wanted.grammar is not None:
        return WantedForm(lark=wanted.grammar, param="structured_outputs.grammar")
    if wanted.regex is not None:
        return _form(regex_body(wanted.regex), "structured_outputs.regex")
    if wanted.choice is not None:
        return _form(choice_body(wanted.choice), "structured_outputs.choice")
    return _form(json_body(_parsed(wanted.json_schema)), "structured_outputs.json")


def _parsed(schema: dict[str, Any] | bool | str | None) -> dict[str, Any] | bool:
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise _refused("structured_outputs.json", f"is not valid JSON: {error}") from error
    if not isinstance(value, dict | bool):
        raise _refused("structured_outputs.json", "must be a JSON schema")
    return value


def _refused(param: str, problem: str) -> ApiError:
    return bad_request(f"{param}: {problem}", param=param.partition(".")[0], code="invalid_value")


async def compile_form(
    form: WantedForm | None, body: SamplingBody, compiler: GrammarCompiler
) -> Grammar | None:
    """The compiled grammar; raises ApiError 400 naming the field. The event loop is not held up."""
    if form is None:
        return None
    if body.ignore_eos:
        raise bad_request(
            f"ignore_eos: contradicts {form.param}, which says where the answer ends", param="ignore_eos"
        )
    try:
        return await asyncio.to_thread(compiler.compile, form.lark)
    except GrammarInvalid as error:
        raise _refused(form.param, str(error)) from error
