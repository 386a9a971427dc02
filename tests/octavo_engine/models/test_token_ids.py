"""Which ids end a text and which exist, from every file that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.token_ids import read_eos_token_ids, read_num_token_ids

ADDED = [{"id": 5, "content": "<|im_end|>"}, {"id": 9, "content": "<late>"}]


def write(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        pytest.param({"eos_token_id": [3, 7]}, {"eos_token_id": 2}, {3, 7}, id="several"),
        pytest.param({"eos_token_id": None}, {"eos_token_id": 2}, {2}, id="null counts as absent"),
        pytest.param({}, {"eos_token_id": [2, 4]}, {2, 4}, id="from the configuration"),
        pytest.param({}, {}, set(), id="nowhere"),
    ],
)
def test_ends_come_from_the_generation_config_or_else_the_configuration(
    tmp_path: Path, generation: dict[str, object], config: dict[str, object], expected: set[int]
) -> None:
    assert read_eos_token_ids(write(tmp_path, generation_config=generation), config) == expected


@pytest.mark.parametrize(
    "stated", ["<|im_end|>", {"content": "<|im_end|>", "special": True}], ids=["text", "object"]
)
def test_end_token_of_the_tokenizer_ends_a_text_besides(tmp_path: Path, stated: object) -> None:
    write(tmp_path, tokenizer={"added_tokens": ADDED}, tokenizer_config={"eos_token": stated})
    assert read_eos_token_ids(tmp_path, {"eos_token_id": 2}) == {2, 5}


def test_end_token_may_be_one_of_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = {"model": {"vocab": {"a": 0, "</s>": 1}}}
    write(tmp_path, tokenizer=tokenizer, tokenizer_config={"eos_token": "</s>"})
    assert read_eos_token_ids(tmp_path, {}) == {1}


@pytest.mark.parametrize("eos", [None, "<unheard of>"])
def test_end_token_that_is_none_adds_nothing(tmp_path: Path, eos: str | None) -> None:
    write(tmp_path, tokenizer={"added_tokens": ADDED}, tokenizer_config={"eos_token": eos})
    assert read_eos_token_ids(tmp_path, {"eos_token_id": 2}) == {2}


def test_ends_that_are_no_ids_are_refused_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"generation_config\.json: eos_token_id"):
        read_eos_token_ids(write(tmp_path, generation_config={"eos_token_id": ["</s>"]}), {})


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        pytest.param({"model": {"vocab": {"a": 0, "b": 3}}}, 4, id="byte pairs"),
        pytest.param({"model": {"vocab": [["a", 0.0], ["b", -1.0]]}}, 2, id="unigrams"),
        pytest.param({"model": {"vocab": {"a": 0}}, "added_tokens": ADDED}, 10, id="added"),
        pytest.param({"model": {"vocab": {"a": 99}}}, 16, id="more than the matrix has"),
        pytest.param({}, 16, id="no tokenizer"),
    ],
)
def test_ids_beyond_the_tokenizers_pad_the_matrix(
    tmp_path: Path, tokenizer: dict[str, object], expected: int
) -> None:
    assert read_num_token_ids(write(tmp_path, tokenizer=tokenizer), vocab_size=16) == expected


def test_weight_file_says_which_ids_are_tokens_where_no_tokenizer_lies_beside_it(tmp_path: Path) -> None:
    assert read_num_token_ids(tmp_path, vocab_size=16, num_named_ids=11) == 11
    write(tmp_path, tokenizer={"model": {"vocab": {"a": 3}}})
    assert read_num_token_ids(tmp_path, vocab_size=16, num_named_ids=11) == 4
