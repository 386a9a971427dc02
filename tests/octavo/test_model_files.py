"""Which files are a model's, and that one digest stands for them."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import engine_contract as contract
from octavo.model_files import ModelFile, ModelIncomplete, manifest_digest, needed_paths, parse_index

PLAIN = ("config.json", "tokenizer.json", "chat_template.jinja", "tokenizer.model", "merges.txt")
files = st.builds(
    ModelFile, path=st.text(), size=st.integers(min_value=0), digest=st.text(alphabet="0123456789abcdef:")
)


def test_needed_files_are_plain_ones_at_the_top_and_one_set_of_weights() -> None:
    others = (
        "README.md",
        "pytorch_model.bin",
        "onnx/config.json",
        "consolidated.safetensors",
        ".hidden.json",
    )
    assert needed_paths((*PLAIN, "model.safetensors", *others), None) == {*PLAIN, "model.safetensors"}


def test_needed_weights_are_all_at_the_top_when_none_has_the_usual_name() -> None:
    assert needed_paths(("config.json", "a.safetensors", "b.safetensors", "c/d.safetensors"), None) == {
        "config.json",
        "a.safetensors",
        "b.safetensors",
    }


def test_needed_weights_are_those_of_the_index() -> None:
    index = {"weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}
    assert needed_paths(("config.json", "a.safetensors", "model.safetensors"), index) == {
        "config.json",
        "a.safetensors",
    }


@pytest.mark.parametrize(
    ("paths", "index", "word"),
    [
        pytest.param(("model.safetensors",), None, "config.json", id="no configuration"),
        pytest.param(("config.json", "model.bin"), None, "safetensors", id="no weights"),
        pytest.param(("config.json",), {"weight_map": {"x": "a.safetensors"}}, "a.safetensors", id="a shard"),
        pytest.param(("config.json",), {}, "weight_map", id="empty index"),
        pytest.param(("config.json",), {"weight_map": {"x": 7}}, "7", id="a shard that is no name"),
        pytest.param(("config.json",), {"weight_map": {"x": "../a.safetensors"}}, "top", id="outside"),
        pytest.param(("config.json",), {"weight_map": {"x": "/a.safetensors"}}, "top", id="absolute"),
    ],
)
def test_incomplete_model_is_refused_by_the_name_of_what_is_missing(
    paths: tuple[str, ...], index: dict[str, object] | None, word: str
) -> None:
    with pytest.raises(ModelIncomplete, match=word) as caught:
        needed_paths(paths, index)
    assert caught.value.reason == contract.REASON_FILE_MISSING


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_index_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(ModelIncomplete, match="index"):
        parse_index(content)


def test_digest_is_that_of_one_line_per_file_in_order_of_path() -> None:
    one = ModelFile(path="b", size=1, digest="sha256:1")
    two = ModelFile(path="a", size=2, digest="git-sha1:2")
    lines = b'["a", 2, "git-sha1:2"]\n["b", 1, "sha256:1"]\n'
    assert manifest_digest([one, two]) == f"sha256:{hashlib.sha256(lines).hexdigest()}"


@given(st.lists(files, unique_by=lambda file: file.path), st.randoms())
def test_digest_does_not_depend_on_order(some: list[ModelFile], chance) -> None:
    shuffled = list(some)
    chance.shuffle(shuffled)
    assert manifest_digest(shuffled) == manifest_digest(some)


@given(st.lists(files, unique_by=lambda file: file.path), st.lists(files, unique_by=lambda file: file.path))
def test_digest_differs_when_the_files_do(some: list[ModelFile], others: list[ModelFile]) -> None:
    assert (manifest_digest(some) == manifest_digest(others)) == (
        sorted(some, key=lambda file: file.path) == sorted(others, key=lambda file: file.path)
    )
