"""Real tokenizers of both kinds with chosen tokens, small enough to reason about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo_engine.text.tokenizer import BYTE_OF_CHAR, TextTokenizer

CHAR_OF_BYTE = {byte: char for char, byte in BYTE_OF_CHAR.items()}
SPECIAL = ("<unk>", "<s>", "</s>")
FIRST_BYTE_ID = len(SPECIAL)


def byte_level_tokenizer(pieces: Sequence[bytes] = ()) -> Tokenizer:
    """GPT-2's kind: ids 0-2 special, then the 256 bytes, then the pieces (which no text encodes to)."""
    chars = [CHAR_OF_BYTE[byte] for byte in range(256)]
    names = [*SPECIAL, *chars, *("".join(CHAR_OF_BYTE[byte] for byte in piece) for piece in pieces)]
    tokenizer = Tokenizer(models.BPE(vocab=numbered(names), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return tokenizer


def piece_ids(tokenizer: Tokenizer, pieces: Sequence[bytes]) -> list[int]:
    """Ids of byte-level pieces."""
    ids = [tokenizer.token_to_id("".join(CHAR_OF_BYTE[byte] for byte in piece)) for piece in pieces]
    assert None not in ids
    return [token_id for token_id in ids if token_id is not None]


def sentencepiece_tokenizer(pieces: Sequence[str]) -> Tokenizer:
    """Llama-2's kind: `▁` for spaces, bytes as <0xXX>, the decoder strips one leading space."""
    byte_names = [f"<0x{byte:02X}>" for byte in range(256)]
    names = list(dict.fromkeys([*SPECIAL, *byte_names, *pieces]))
    tokenizer = Tokenizer(models.BPE(vocab=numbered(names), merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return tokenizer


def numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


def text_tokenizer(backend: Tokenizer, config: Mapping[str, object] | None = None) -> TextTokenizer:
    return TextTokenizer(backend, config or {})


def save_tokenizer(backend: Tokenizer, folder: Path) -> None:
    backend.save(str(folder / "tokenizer.json"))
