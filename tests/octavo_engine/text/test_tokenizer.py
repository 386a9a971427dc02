"""Loading tokenizers, and what single tokens stand for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import InvalidConfig
from octavo_engine.text.generation_defaults import GenerationDefaults, load_generation_defaults
from octavo_engine.text.tokenizer import load_tokenizer
from tests.octavo_engine.text.small_tokenizers import (
    FIRST_BYTE_ID,
    byte_level_tokenizer,
    save_tokenizer,
    sentencepiece_tokenizer,
    text_tokenizer,
)


@pytest.mark.parametrize(
    ("add_bos", "expected"), [(True, [1, FIRST_BYTE_ID + 97]), (False, [FIRST_BYTE_ID + 97])]
)
def test_tokenizer_obeys_add_bos_token(tmp_path: Path, add_bos: bool, expected: list[int]) -> None:
    save_tokenizer(byte_level_tokenizer(), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "add_bos_token": add_bos})
    )
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("a") == expected
    assert tokenizer.encode("a", add_special_tokens=False) == [FIRST_BYTE_ID + 97]


def test_tokenizer_missing_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=str(tmp_path)):
        load_tokenizer(tmp_path)


def test_token_text_keeps_the_space_in_front() -> None:
    backend = sentencepiece_tokenizer(["▁the", "a", "▁a"])
    assert text_tokenizer(backend).token_text(backend.token_to_id("▁the")) == " the"


def test_token_text_names_special_tokens() -> None:
    assert text_tokenizer(byte_level_tokenizer()).token_text(2) == "</s>"


def test_token_bytes_are_exact_inside_a_character() -> None:
    byte_level = text_tokenizer(byte_level_tokenizer())
    assert byte_level.token_bytes(FIRST_BYTE_ID + 0xF0) == b"\xf0"
    backend = sentencepiece_tokenizer(["▁a"])
    assert text_tokenizer(backend).token_bytes(backend.token_to_id("<0xF0>")) == b"\xf0"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, GenerationDefaults(), id="no file"),
        pytest.param(
            {"temperature": 0.6, "top_k": 20}, GenerationDefaults(temperature=0.6, top_k=20), id="some"
        ),
        pytest.param({"temperature": None, "do_sample": True}, GenerationDefaults(), id="null"),
    ],
)
def test_generation_defaults_come_from_the_file(
    tmp_path: Path, content: dict[str, object] | None, expected: GenerationDefaults
) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(content))
    assert load_generation_defaults(tmp_path) == expected


def test_token_label_tells_parts_of_characters_apart() -> None:
    byte_level = text_tokenizer(byte_level_tokenizer())
    assert byte_level.token_label(FIRST_BYTE_ID + 0xF0) == "bytes:\\xf0"
    assert byte_level.token_label(FIRST_BYTE_ID + 97) == "a"
