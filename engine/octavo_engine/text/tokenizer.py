"""The model's tokenizer: `tokenizers` alone where the model has a tokenizer.json, which loads in a
fraction of the time and memory that `transformers` takes; `transformers` converts the other formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from octavo.errors import InvalidConfig
from octavo_engine.gguf_file import GGUFFile, find_gguf, model_folder
from octavo_engine.text.gguf_tokenizer import read_gguf_tokenizer

SPECIAL_TOKENS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "sep_token",
    "cls_token",
    "mask_token",
)

CONVERTIBLE_FILES: Final = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")
"""What other formats consist of, at least one of them."""


class TextTokenizer:
    """Text ⇄ token ids of one model. Safe to use from several threads."""

    def __init__(self, backend: Tokenizer, config: Mapping[str, object]) -> None:
        self._backend = backend
        self.special_tokens = read_special_tokens(config)
        self._bos_id = backend.token_to_id(self.special_tokens.get("bos_token", ""))
        self._add_bos = config.get("add_bos_token")
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._anchor: int | None = next(iter(backend.encode("a", add_special_tokens=False).ids), None)

    @property
    def vocab_size(self) -> int:
        """Number of ids that stand for a token, added ones included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def highest_id(self) -> int:
        """Ids may have gaps, so this may be more than their number."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=0)

    def to_json(self) -> str:
        """As tokenizer.json holds it."""
        return str(self._backend.to_str())

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of the text. A chat template writes special tokens itself: then add none."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        if (
            add_special_tokens
            and self._add_bos is True
            and self._bos_id is not None
            and ids[:1] != [self._bos_id]
        ):
            return [self._bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of the ids as a whole."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> str:
        """One token as it reads inside a text (its leading space kept), special tokens by their name."""
        if self._anchor is None:
            return self.decode([token_id], skip_special_tokens=False)
        anchor = self.decode([self._anchor], skip_special_tokens=False)
        return self.decode([self._anchor, token_id], skip_special_tokens=False)[len(anchor) :]

    def token_label(self, token_id: int) -> str:
        """A name that tells tokens apart: a part of a character is written as `bytes:\\xf0`."""
        text = self.token_text(token_id)
        if "\ufffd" not in text:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.token_bytes(token_id))

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes a token stands for, also where they are a part of a character only."""
        text = self.token_text(token_id)
        piece = self._backend.id_to_token(token_id)
        if "\ufffd" not in text or piece is None:
            return text.encode()
        if piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:-1], 16)])
        if all(char in BYTE_OF_CHAR for char in piece):
            return bytes(BYTE_OF_CHAR[char] for char in piece)
        return text.encode()


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character; this is GPT-2's table, inverted."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHAR: Final = _byte_alphabet()


def load_tokenizer(model: Path) -> TextTokenizer:
    """The tokenizer in a model's folder or GGUF file; raises InvalidConfig that says what is missing."""
    model_dir, gguf_path = model_folder(model), find_gguf(model)
    config = read_json_object(model_dir / "tokenizer_config.json")
    path = model_dir / "tokenizer.json"
    if path.is_file():
        return TextTokenizer(Tokenizer.from_file(str(path)), config)
    if gguf_path is not None:
        return TextTokenizer(*read_gguf_tokenizer(GGUFFile(gguf_path)))
    return TextTokenizer(_convert_with_transformers(model_dir), config)


def _convert_with_transformers(model_dir: Path) -> Tokenizer:
    if not any((model_dir / name).is_file() for name in CONVERTIBLE_FILES):
        names = ", ".join(("tokenizer.json", *CONVERTIBLE_FILES))
        raise InvalidConfig(f"{model_dir}: holds no tokenizer: there is none of {names}")
    from transformers import AutoTokenizer

    try:
        loaded: Any = AutoTokenizer.from_pretrained(model_dir, local_files_only=True, trust_remote_code=False)
        backend: Tokenizer = loaded.backend_tokenizer
    except Exception as error:
        raise InvalidConfig(f"{model_dir}: holds no tokenizer.json and none can be made: {error}") from error
    return backend


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InvalidConfig(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{path}: must hold a JSON object, not a {type(value).__name__}")
    return value


def read_special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    """`bos_token` and its like by name; each is written as text or as an object with `content`."""
    found: dict[str, str] = {}
    for name in SPECIAL_TOKENS:
        value = config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found
