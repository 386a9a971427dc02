"""The tokenizer of a GGUF file against SentencePiece itself, with models trained here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from octavo_engine.text.tokenizer import TextTokenizer, load_tokenizer
from tests.octavo_engine.models.gguf_files import write_gguf
from tests.octavo_engine.oracle import load_engine, save_tiny_model
from tests.octavo_engine.server.tiny_model import TEXT

VOCAB_SIZE = 400
PADDING = 3
TEXTS = [
    "The octavo is a sheet folded three times.",
    "  two spaces first, and  two inside\n\nand lines\t",
    "Eine Katze, zwei Katzen 👋 naïve café 日本語",
    " ",
    "",
]


def train(*, space_first: bool) -> SentencePieceProcessor:
    """Like Llama's, or like Gemma's, which puts no space first and has runs of spaces as whole tokens."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 4),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=space_first,
        user_defined_symbols=["<think>"] if space_first else ["\u2581\u2581\u2581", "<think>"],
        control_symbols=["<|user|>", "<|end|>"],
        minloglevel=2,
    )
    return SentencePieceProcessor(model_proto=model.getvalue())


def kind_of(original: SentencePieceProcessor, number: int) -> int:
    """As llama.cpp's converter tells them apart."""
    if original.is_unknown(number):
        return 2
    if original.is_control(number):
        return 3
    if original.is_byte(number):
        return 6
    return 4 if original.id_to_piece(number) in ("\u2581\u2581\u2581", "<think>") else 1


def fields_of(original: SentencePieceProcessor, *, space_first: bool, **others: Any) -> dict[str, Any]:
    """What the converter writes; it spells spaces of user-defined tokens out, and names padding."""
    count = original.get_piece_size()
    kinds = [kind_of(original, number) for number in range(count)]
    pieces = [original.id_to_piece(number) for number in range(count)]
    tokens = [
        piece.replace("\u2581", " ") if kind == 4 else piece
        for piece, kind in zip(pieces, kinds, strict=True)
    ]
    padding = [f"[PAD{number}]" for number in range(count, count + PADDING)]
    fields = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens + padding,
        "scores": [original.get_score(number) for number in range(count)] + [-10000.0] * PADDING,
        "token_type": kinds + [5] * PADDING,
        "bos_token_id": original.bos_id(),
        "add_space_prefix": space_first,
        **others,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m")
    return save_tiny_model(folder, num_hidden_layers=1, vocab_size=VOCAB_SIZE + PADDING)


@pytest.fixture(scope="module", params=[True, False], ids=["space first", "as it is"])
def both(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SentencePieceProcessor, TextTokenizer]:
    original = train(space_first=request.param)
    fields = fields_of(original, space_first=request.param)
    path = write_gguf(checkpoint, tmp_path_factory.mktemp("gguf") / "tiny.gguf", metadata=fields)
    return original, load_tokenizer(path)


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_sentencepiece(
    both: tuple[SentencePieceProcessor, TextTokenizer], text: str
) -> None:
    original, tokenizer = both
    ids = original.encode(text)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    assert tokenizer.encode(text) == [original.bos_id(), *ids]
    assert tokenizer.decode(ids) == original.decode(ids) == text


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("aeost hTé,.1\n日👋"), max_size=30))
def test_tokens_of_any_text_are_those_of_sentencepiece(
    both: tuple[SentencePieceProcessor, TextTokenizer], text: str
) -> None:
    original, tokenizer = both
    assert tokenizer.encode(text, add_special_tokens=False) == original.encode(text)


def test_whole_tokens_are_found_as_they_are_written(checkpoint: Path, tmp_path: Path) -> None:
    original = train(space_first=False)
    path = write_gguf(
        checkpoint, tmp_path / "t.gguf", metadata=fields_of(original, space_first=False, add_bos_token=False)
    )
    tokenizer = load_tokenizer(path)
    text = "<|user|>the<think>sheet   <|end|>"
    named = [
        original.piece_to_id(piece) for piece in ("<|user|>", "<think>", "\u2581\u2581\u2581", "<|end|>")
    ]
    expected = [
        named[0],
        *original.encode("the"),
        named[1],
        *original.encode("sheet"),
        named[2],
        named[3],
    ]
    assert tokenizer.encode(text) == expected
    assert tokenizer.decode(expected) == "the<think>sheet   "
    assert tokenizer.special_ids >= {named[0], named[3]}


def test_phi3_takes_the_space_after_a_control_token(tmp_path: Path) -> None:
    folder = save_tiny_model(
        tmp_path / "m", "Phi3Config", num_hidden_layers=1, vocab_size=VOCAB_SIZE + PADDING
    )
    fields = fields_of(train(space_first=True), space_first=True)
    tokenizer = load_tokenizer(write_gguf(folder, tmp_path / "t.gguf", metadata=fields))
    assert tokenizer.encode("<|user|>\nthe<|end|>\n") == tokenizer.encode("<|user|>the<|end|>")
    assert tokenizer.encode("<s>\nthe") != tokenizer.encode("<s>the")


def test_ids_that_pad_the_matrix_are_never_drawn(checkpoint: Path, tmp_path: Path) -> None:
    fields = fields_of(train(space_first=True), space_first=True)
    path = write_gguf(checkpoint, tmp_path / "tiny.gguf", metadata=fields)
    assert load_engine(path).facts.vocab_size == VOCAB_SIZE
