"""Incremental detokenization against decoding as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.text.detokenizer import MAX_PENDING_REPLACEMENTS, REPLACEMENT, IncrementalDetokenizer
from octavo_engine.text.tokenizer import TextTokenizer
from tests.octavo_engine.text.small_tokenizers import (
    FIRST_BYTE_ID,
    byte_level_tokenizer,
    piece_ids,
    sentencepiece_tokenizer,
    text_tokenizer,
)

BYTE_LEVEL = text_tokenizer(byte_level_tokenizer())
LLAMA_PIECES = ["▁Da", "ener", "ys", "▁is", "▁the", "▁", "▁x", "a", "▁a", "é"]
LLAMA_BACKEND = sentencepiece_tokenizer(LLAMA_PIECES)
LLAMA = text_tokenizer(LLAMA_BACKEND)


def pieces_of(tokenizer: TextTokenizer, ids: list[int], context: list[int] | None = None) -> list[str]:
    detokenizer = IncrementalDetokenizer(
        tokenizer.decode, silent_ids=tokenizer.special_ids, context=context or []
    )
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def byte_ids(data: bytes) -> list[int]:
    return [FIRST_BYTE_ID + byte for byte in data]


def test_detokenizer_never_emits_half_a_character_when_bytes_are_split() -> None:
    pieces = [bytes.fromhex(piece) for piece in ("20", "F09F91", "8B", "20", "C4", "8F")]
    backend = byte_level_tokenizer([pieces[1]])
    emitted = pieces_of(text_tokenizer(backend), piece_ids(backend, pieces))
    assert emitted == [" ", "", "\U0001f44b", " ", "", "ď", ""]


@given(st.text(max_size=40))
def test_detokenizer_gives_the_text_back_from_single_bytes(text: str) -> None:
    emitted = pieces_of(BYTE_LEVEL, byte_ids(text.encode()))
    assert "".join(emitted) == text
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in emitted)


@given(st.lists(st.integers(FIRST_BYTE_ID, FIRST_BYTE_ID + 255), max_size=40))
def test_detokenizer_equals_the_whole_text_for_any_bytes(ids: list[int]) -> None:
    assert "".join(pieces_of(BYTE_LEVEL, ids)) == BYTE_LEVEL.decode(ids)


@given(st.lists(st.sampled_from(LLAMA_PIECES), min_size=1, max_size=20))
def test_detokenizer_keeps_sentencepiece_spaces(pieces: list[str]) -> None:
    ids = [LLAMA_BACKEND.token_to_id(piece) for piece in pieces]
    assert "".join(pieces_of(LLAMA, ids)) == LLAMA.decode(ids)


@given(st.text(alphabet="aé€👋 ", max_size=20))
def test_detokenizer_joins_byte_fallback_characters(text: str) -> None:
    names = [f"<0x{byte:02X}>" for byte in text.encode()]
    ids = [LLAMA_BACKEND.token_to_id(name) for name in names]
    emitted = pieces_of(LLAMA, ids)
    assert "".join(emitted) == LLAMA.decode(ids)
    assert not any(REPLACEMENT in piece for piece in emitted)


def test_detokenizer_keeps_the_leading_space_when_it_continues_a_prompt() -> None:
    prompt = [LLAMA_BACKEND.token_to_id(piece) for piece in ("<s>", "▁Da", "ener", "ys")]
    ids = [LLAMA_BACKEND.token_to_id(piece) for piece in ("▁is", "▁the", "▁", "▁x")]
    assert "".join(pieces_of(LLAMA, ids, prompt)) == " is the  x"


def test_detokenizer_starts_afresh_when_the_prompt_ends_inside_a_character() -> None:
    emitted = pieces_of(BYTE_LEVEL, byte_ids(b"ab"), byte_ids("👋".encode()[:2]))
    assert "".join(emitted) == "ab"


def test_detokenizer_gives_special_tokens_no_text_and_no_memory() -> None:
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL.decode, silent_ids=BYTE_LEVEL.special_ids)
    assert detokenizer.push(byte_ids(b"a")[0]) == "a"
    assert [detokenizer.push(1) for _ in range(100)] == [""] * 100
    assert len(detokenizer._window) == 1


def test_detokenizer_releases_bytes_that_will_never_be_a_character() -> None:
    emitted = pieces_of(BYTE_LEVEL, byte_ids(b"\xff" * (2 * MAX_PENDING_REPLACEMENTS)))
    assert "".join(emitted) == REPLACEMENT * (2 * MAX_PENDING_REPLACEMENTS)
    assert any(emitted[:-1]), "held back until the end"


def test_detokenizer_flushes_an_incomplete_character_as_a_replacement() -> None:
    assert pieces_of(BYTE_LEVEL, byte_ids("👋".encode()[:3])) == ["", "", "", REPLACEMENT]


@pytest.mark.parametrize("length", [100, 4000])
def test_detokenizer_decodes_a_small_window_however_long_the_text(length: int) -> None:
    seen: list[int] = []

    def decode(ids: object) -> str:
        seen.append(len(list(ids)))  # type: ignore[call-overload]
        return BYTE_LEVEL.decode(ids)  # type: ignore[arg-type]

    detokenizer = IncrementalDetokenizer(decode)
    for token_id in byte_ids(b"abcde" * (length // 5)):
        detokenizer.push(token_id)
    assert max(seen) <= 2
