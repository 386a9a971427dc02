"""What /openapi.json says of fields that are parsed by hand, as exactly as JSON Schema can."""

from __future__ import annotations

from typing import Any, Final

from octavo_engine.config import ADAPTER_NAME

TOKEN_ID: Final = "TokenId"
"""Name of the component that a served model's vocabulary bounds."""
TOKEN_IDS_SCHEMA: Final = {"type": "array", "items": {"$ref": f"#/components/schemas/{TOKEN_ID}"}}
TEXT: Final = {"type": "string", "minLength": 1}
PROMPT_SCHEMA: Final = {
    "anyOf": [
        TEXT,
        {"type": "array", "minItems": 1, "items": TEXT},
        {**TOKEN_IDS_SCHEMA, "minItems": 1},
        {"type": "array", "minItems": 1, "items": {**TOKEN_IDS_SCHEMA, "minItems": 1}},
    ]
}
TEXT_OR_MESSAGES: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
        {"required": ["messages"], "properties": {"messages": {"type": "array"}}},
    ]
}
ADAPTER_NAME_SCHEMA: Final = {"type": "string", "pattern": f"^{ADAPTER_NAME.pattern}$"}

CONTENT: Final = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            },
        },
    ]
}
CALL: Final = {
    "type": "object",
    "required": ["id", "function"],
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "string", "description": "the JSON text of an object"},
            },
        },
    },
}


def _message(
    roles: tuple[str, ...], content: dict[str, Any], *required: str, **fields: dict[str, Any]
) -> dict[str, Any]:
    common = {"role": {"enum": list(roles)}, "content": content, "name": {"type": "string"}}
    return {
        "type": "object",
        "required": ["role", *required],
        "properties": {**common, **fields},
        "additionalProperties": False,
    }


MESSAGES_SCHEMA: Final = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            _message(("system", "developer", "user"), CONTENT, "content"),
            _message(
                ("assistant",),
                {"anyOf": [*CONTENT["anyOf"], {"type": "null"}]},
                tool_calls={"type": "array", "items": CALL},
                refusal={"type": ["string", "null"]},
            ),
            _message(("tool",), CONTENT, "content", "tool_call_id", tool_call_id={"type": "string"}),
        ]
    },
}
