"""The list of tokens in a GGUF file, and what kind each is."""

from __future__ import annotations

from typing import Final

from octavo_engine.gguf_file import GGUFFile

NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
"""Stands where the matrix has more rows than the tokenizer has tokens."""


def token_texts(file: GGUFFile, name: str) -> list[str]:
    """A list of texts below `tokenizer.ggml`: `tokens` or `merges`."""
    values = file.fields.get(f"tokenizer.ggml.{name}")
    return [str(value) for value in values] if isinstance(values, list) else []


def token_kinds(file: GGUFFile) -> list[int]:
    """One kind for each token; empty where a file does not say."""
    values = file.fields.get("tokenizer.ggml.token_type")
    return [int(value) for value in values] if isinstance(values, list) else []


def num_named_tokens(file: GGUFFile) -> int | None:
    """Ids below this are tokens, those from it on rows that pad a matrix; None: the file does not say."""
    kinds = token_kinds(file)
    used = [number for number, kind in enumerate(kinds) if kind != UNUSED]
    return used[-1] + 1 if used else None
