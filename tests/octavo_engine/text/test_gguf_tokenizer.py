"""The text files that a GGUF file stands for: the tokenizer it was made of, its template, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf import gguf_tokenizer_mapping

from octavo.errors import InvalidConfig, InvalidSpec
from octavo_engine.cli.serve_command import open_folder
from octavo_engine.server.process import read_text_files
from octavo_engine.text.gguf_tokenizer import (
    GPT4O_PATTERN,
    LLAMA3_PATTERN,
    QWEN2_PATTERN,
    SPLITTINGS,
    TEKKEN_PATTERN,
)
from octavo_engine.text.tokenizer import TextTokenizer, load_tokenizer
from tests.octavo_engine.models.gguf_files import tokenizer_fields, write_gguf
from tests.octavo_engine.oracle import save_tiny_model
from tests.octavo_engine.server.tiny_model import VOCAB_SIZE, trained_tokenizer
from tests.octavo_engine.text.small_tokenizers import SPECIAL

TEXTS = [
    "The octavo is a sheet, folded 3 times; 1234567 leaves.\n\n  And a cat's  tail\t",
    "Eine Katze, zwei Katzen 👋 naïve café 日本語",
    f"{SPECIAL[0]}the{SPECIAL[1]} octavo",
    "",
]
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("m"), num_hidden_layers=1, vocab_size=VOCAB_SIZE)


def gguf_with(checkpoint: Path, folder: Path, metadata: dict[str, Any]) -> Path:
    return write_gguf(checkpoint, folder / "tiny.gguf", metadata=metadata)


def with_splitting(splitting: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = trained_tokenizer()
    tokenizer.pre_tokenizer = splitting
    return tokenizer


@pytest.mark.parametrize(
    ("split", "splitting"),
    [
        pytest.param("gpt-2", BYTES, id="gpt-2"),
        pytest.param(
            "smollm",
            pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES]),
            id="digits apart",
        ),
        pytest.param("qwen2", split_by(QWEN2_PATTERN), id="qwen 2"),
        pytest.param("tekken", split_by(TEKKEN_PATTERN), id="mistral nemo"),
        pytest.param("gpt-4o", split_by(GPT4O_PATTERN), id="phi 4 mini"),
        pytest.param("llama-bpe", split_by(LLAMA3_PATTERN), id="llama 3"),
    ],
)
def test_tokenizer_from_the_file_gives_the_original_tokens(
    checkpoint: Path, tmp_path: Path, split: str, splitting: pre_tokenizers.PreTokenizer
) -> None:
    original = TextTokenizer(with_splitting(splitting), {})
    fields = tokenizer_fields(with_splitting(splitting), split=split, special=SPECIAL, add_bos_token=False)
    tokenizer = load_tokenizer(gguf_with(checkpoint, tmp_path, fields))
    for text in TEXTS:
        ids = original.encode(text)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == original.decode(ids)
    assert tokenizer.special_ids == original.special_ids
    assert tokenizer.vocab_size == original.vocab_size


def test_patterns_are_those_of_transformers() -> None:
    theirs = gguf_tokenizer_mapping.GGUF_PRE_TOKENIZER_SPLITS
    for name, splitting in SPLITTINGS.items():
        if splitting.pattern is not None:
            assert splitting.pattern == theirs[name], name


def test_qwen_joins_accents_with_their_letters(checkpoint: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(trained_tokenizer(), split="qwen2", special=SPECIAL)
    tokenizer = load_tokenizer(gguf_with(checkpoint, tmp_path, fields))
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("caf\u00e9")


def test_llama3_begins_a_text_with_bos_unless_the_file_says_otherwise(
    checkpoint: Path, tmp_path: Path
) -> None:
    bos = trained_tokenizer().token_to_id(SPECIAL[0])
    fields = tokenizer_fields(trained_tokenizer(), split="llama-bpe", special=SPECIAL, bos_token_id=bos)
    tokenizer = load_tokenizer(gguf_with(checkpoint, tmp_path, fields))
    assert tokenizer.encode("the")[0] == bos != tokenizer.encode("the", add_special_tokens=False)[0]


def test_template_writes_the_special_tokens_of_the_file(checkpoint: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(trained_tokenizer(), split="gpt-2", special=SPECIAL, eos_token_id=1)
    fields["tokenizer.chat_template"] = "{{ messages[0]['content'] }}{{ eos_token }}"
    path = gguf_with(checkpoint, tmp_path, fields)
    for model in (path, tmp_path):
        template = read_text_files(model).template
        assert template is not None
        expected = "hello" + str(trained_tokenizer().id_to_token(1))
        assert template.render([{"role": "user", "content": "hello"}]) == expected


@pytest.mark.parametrize("changes", [{"pre": "unheard-of"}, {"model": "rwkv"}, {"model": "llama"}])
def test_tokenizer_that_is_not_known_is_refused_until_the_models_own_lies_beside(
    checkpoint: Path, tmp_path: Path, changes: dict[str, str]
) -> None:
    fields = tokenizer_fields(trained_tokenizer(), split="gpt-2", special=SPECIAL)
    path = gguf_with(
        checkpoint,
        tmp_path,
        {**fields, **{f"tokenizer.ggml.{name}": value for name, value in changes.items()}},
    )
    with pytest.raises(InvalidConfig, match=r"tokenizer\.ggml.*put the model's tokenizer\.json beside"):
        load_tokenizer(path)
    trained_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(path).encode(TEXTS[0]) == trained_tokenizer().encode(TEXTS[0]).ids


def test_serve_takes_a_file_and_names_what_a_folder_lacks(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"no config\.json and no GGUF file"):
        open_folder(tmp_path, "")
    path = gguf_with(checkpoint, tmp_path, {})
    assert open_folder(path, "") is None and open_folder(tmp_path, "") is None
