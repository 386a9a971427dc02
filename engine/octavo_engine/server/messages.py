"""Conversations: messages as a client sends them, and as the model's template writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.text.chat_template import ChatTemplate, TemplateRefused

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
MESSAGE_FIELDS: Final = frozenset({"role", "content", "name", "refusal"})
FIELDS_OF_ROLE: Final[Mapping[str, frozenset[str]]] = {
    "assistant": frozenset({"tool_calls"}),
    "tool": frozenset({"tool_call_id"}),
}
RESERVED_TEMPLATE_NAMES: Final = frozenset({"messages", "add_generation_prompt", "tools", "documents"})


def parse_messages(value: Sequence[object]) -> list[dict[str, Any]]:
    """A conversation whose contents are plain texts, as templates expect them."""
    if not value:
        raise bad_request("messages: must hold at least one message", param="messages", code="invalid_value")
    return [_parse_message(index, message) for index, message in enumerate(value)]


def _parse_message(index: int, message: object) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise _bad_message(where, "must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise _bad_message(f"{where}.role", f"must be one of {', '.join(ROLES)}, got {str(role)[:40]!r}")
    known = MESSAGE_FIELDS | FIELDS_OF_ROLE.get(role, frozenset())
    for name in message:
        if name not in known and message[name] not in (None, []):
            raise _bad_message(f"{where}.{name}", "is not supported by this server")
    parsed: dict[str, Any] = {"role": "system" if role == "developer" else role}
    parsed["content"] = _parse_content(
        f"{where}.content", message.get("content"), may_be_null=role == "assistant"
    )
    if isinstance(message.get("name"), str):
        parsed["name"] = message["name"]
    if role == "assistant" and message.get("tool_calls"):
        parsed["tool_calls"] = _parse_calls(f"{where}.tool_calls", message["tool_calls"])
    if role == "tool":
        parsed["tool_call_id"] = _text_of(message, "tool_call_id", where)
    return parsed


def _parse_calls(where: str, calls: object) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise _bad_message(where, "must be a list")
    return [_parse_call(f"{where}[{index}]", call) for index, call in enumerate(calls)]


def _parse_call(where: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if (
        not isinstance(call, Mapping)
        or call.get("type", "function") != "function"
        or not isinstance(function, Mapping)
    ):
        raise _bad_message(where, "must be an object of type function with id and function")
    parsed = {
        "name": _text_of(function, "name", f"{where}.function"),
        "arguments": _parse_arguments(f"{where}.function.arguments", function.get("arguments")),
    }
    return {"id": _text_of(call, "id", where), "type": "function", "function": parsed}


def _parse_arguments(where: str, arguments: object) -> dict[str, Any]:
    """Templates write arguments as JSON themselves, so they need the object; the API has it as text."""
    try:
        value = json.loads(arguments or "{}") if isinstance(arguments, str) else None
    except (ValueError, RecursionError) as error:
        raise _bad_message(where, f"is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad_message(where, "must be the JSON text of an object")
    return value


def _text_of(holder: Mapping[str, Any], name: str, where: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise _bad_message(f"{where}.{name}", "must be a text")
    return value


def _parse_content(where: str, content: object, *, may_be_null: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_be_null:
        return ""
    if isinstance(content, list):
        return "\n".join(_parse_part(f"{where}[{index}]", part) for index, part in enumerate(content))
    raise _bad_message(where, "must be a text or a list of text parts")


def _parse_part(where: str, part: object) -> str:
    if not isinstance(part, Mapping):
        raise _bad_message(where, "must be an object with a type")
    if part.get("type") != "text":
        raise _bad_message(
            where, f"type {str(part.get('type'))[:40]!r} is not supported: this model reads text only"
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise _bad_message(f"{where}.text", "must be a text")
    return text


def _bad_message(where: str, problem: str) -> ApiError:
    return bad_request(f"{where}: {problem}", param="messages", code="invalid_value")


def render_chat(
    template: ChatTemplate | None,
    messages: Sequence[dict[str, Any]],
    extra: Mapping[str, Any] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The conversation as the model's template writes it; 400 without a template or if it refuses."""
    if template is None:
        raise bad_request(
            "this model has no chat template, so it cannot be asked by messages; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    for name in extra or {}:
        if name in RESERVED_TEMPLATE_NAMES:
            raise bad_request(
                f"chat_template_kwargs.{name}: is set by the server", param="chat_template_kwargs"
            )
    try:
        return template.render(messages, extra, tools)
    except TemplateRefused as error:
        raise bad_request(
            f"messages: the model's chat template refused them: {error}", param="messages"
        ) from error
