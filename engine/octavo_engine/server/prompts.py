"""From what a client sent to token ids: the four forms of `prompt`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.text.tokenizer import TextTokenizer

SHORT_TEXT: Final = 2000
"""Characters that are tokenized in the event loop; longer texts go to a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Token ids to continue, and their text where it was sent as text."""

    token_ids: tuple[int, ...]
    text: str | None = None


def count_prompts(value: object) -> int:
    """How many there would be, at a glance: to refuse far too many before anything is made of them."""
    is_many = isinstance(value, list) and len(value) > 0 and not isinstance(value[0], int)
    return len(value) if isinstance(value, list) and is_many else 1


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
