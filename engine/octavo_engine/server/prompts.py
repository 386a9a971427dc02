"""From what a client sent to token ids: the four forms of `prompt`, and conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.text.chat_template import ChatTemplate, TemplateRefused
from octavo_engine.text.tokenizer import TextTokenizer

ROLES: Final = ("system", "developer", "user", "assistant")
MESSAGE_FIELDS: Final = frozenset({"role", "content", "name", "refusal"})
RESERVED_TEMPLATE_NAMES: Final = frozenset({"messages", "add_generation_prompt", "tools", "documents"})
SHORT_TEXT: Final = 2000
"""Characters that are tokenized in the event loop; longer texts go to a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Token ids to continue, and their text where it was sent as text."""

    token_ids: tuple[int, ...]
    text: str | None = None


async def parse_prompts(value: object, tokenizer: TextTokenizer, vocab_size: int) -> list[Prompt]:
    """`prompt` of a completion: a text, several texts, ids, or several lists of ids."""
    if isinstance(value, str):
        return [await _of_text(value, tokenizer)]
    if not isinstance(value, list) or not value:
        raise _bad_prompt("must be a text, texts, token ids or lists of token ids, and not empty")
    if all(isinstance(entry, str) for entry in value):
        return [await _of_text(entry, tokenizer) for entry in value]
    if all(isinstance(entry, list) for entry in value):
        return [_of_ids(entry, vocab_size) for entry in value]
    return [_of_ids(value, vocab_size)]


async def _of_text(text: str, tokenizer: TextTokenizer) -> Prompt:
    ids = await encode(tokenizer, text, add_special_tokens=True)
    if not ids:
        raise _bad_prompt("is empty: this model's tokenizer adds no token of its own to start from")
    return Prompt(token_ids=tuple(ids), text=text)


def _of_ids(value: Sequence[object], vocab_size: int) -> Prompt:
    if not value:
        raise _bad_prompt("holds an empty list of token ids")
    for entry in value:
        if not isinstance(entry, int) or isinstance(entry, bool):
            raise _bad_prompt("must not mix texts, token ids and lists")
        if not 0 <= entry < vocab_size:
            raise _bad_prompt(f"token id {entry} is outside the vocabulary (0 to {vocab_size - 1})")
    return Prompt(token_ids=tuple(entry for entry in value if isinstance(entry, int)))


def _bad_prompt(problem: str) -> ApiError:
    return bad_request(f"prompt: {problem}", param="prompt", code="invalid_value")


async def encode(tokenizer: TextTokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids; a long text does not hold up the event loop."""
    if len(text) <= SHORT_TEXT:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=add_special_tokens)


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
    for name in message:
        if name not in MESSAGE_FIELDS and message[name] not in (None, []):
            raise _bad_message(f"{where}.{name}", "is not supported by this server")
    parsed = {"role": "system" if role == "developer" else role}
    parsed["content"] = _parse_content(
        f"{where}.content", message.get("content"), may_be_null=role == "assistant"
    )
    if isinstance(message.get("name"), str):
        parsed["name"] = message["name"]
    return parsed


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
    template: ChatTemplate | None, messages: Sequence[dict[str, Any]], extra: Mapping[str, Any] | None
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
        return template.render(messages, extra)
    except TemplateRefused as error:
        raise bad_request(
            f"messages: the model's chat template refused them: {error}", param="messages"
        ) from error
