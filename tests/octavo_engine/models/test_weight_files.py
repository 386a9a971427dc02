"""A checkpoint that lacks something is refused by name; a whole one loads, sharded or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo_engine.errors import ModelFileError, UnsupportedModel
from octavo_engine.models.weight_files import INDEX_FILE, SINGLE_FILE
from tests.octavo_engine.oracle import (
    generate,
    load_engine,
    load_oracle,
    oracle_greedy,
    request,
    save_tiny_model,
)

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TENSOR = "model.layers.2.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def sharded(whole: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "sharded"
    shutil.copytree(whole, directory)
    tensors = load_file(directory / SINGLE_FILE)
    names = sorted(tensors)
    shards = {FIRST: names[: len(names) // 2], SECOND: names[len(names) // 2 :]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    weight_map = {name: file for file, part in shards.items() for name in part}
    (directory / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (directory / SINGLE_FILE).unlink()
    return directory


def rewrite(directory: Path, file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(directory / file)
    change(tensors)
    save_file(tensors, directory / file, metadata={"format": "pt"})


def without_tensor(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[TENSOR]


def test_sharded_checkpoint_generates_what_the_whole_one_does(whole: Path, sharded: Path) -> None:
    texts = [generate(load_engine(path), [request("r", [5, 6, 7, 8], 12)])[0] for path in (whole, sharded)]
    assert texts[0] == texts[1]


def test_files_of_any_name_are_read_where_neither_index_nor_single_file_says_which(
    whole: Path, sharded: Path
) -> None:
    (sharded / INDEX_FILE).unlink()
    prompt = [request("r", [5, 6, 7, 8], 12)]
    assert generate(load_engine(sharded), prompt) == generate(load_engine(whole), prompt)


def test_tensor_in_two_files_is_named_with_both(sharded: Path) -> None:
    tensors = load_file(sharded / SECOND)
    (sharded / INDEX_FILE).unlink()
    rewrite(sharded, FIRST, lambda first: first.update({TENSOR: torch.zeros(96, 64)}))
    assert TENSOR in tensors
    with pytest.raises(ModelFileError, match=rf"{TENSOR}: in {FIRST} and in {SECOND}"):
        load_engine(sharded)


def test_missing_shard_is_named_and_loads_once_it_is_there(sharded: Path) -> None:
    (sharded / SECOND).rename(sharded / "aside")
    with pytest.raises(ModelFileError, match=SECOND):
        load_engine(sharded)
    (sharded / "aside").rename(sharded / SECOND)
    assert load_engine(sharded).facts.weights_bytes > 0


@pytest.mark.parametrize("keep", [0.9, 0.001, 0.0], ids=["data cut", "header cut", "empty"])
def test_truncated_file_is_named(sharded: Path, keep: float) -> None:
    path = sharded / SECOND
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(ModelFileError, match=SECOND):
        load_engine(sharded)


def test_tensor_missing_from_its_shard_is_named(sharded: Path) -> None:
    index = json.loads((sharded / INDEX_FILE).read_text())["weight_map"]
    rewrite(sharded, index[TENSOR], without_tensor)
    with pytest.raises(ModelFileError, match=TENSOR):
        load_engine(sharded)


def test_tensor_missing_from_all_files_is_named(sharded: Path) -> None:
    index = json.loads((sharded / INDEX_FILE).read_text())
    file = index["weight_map"].pop(TENSOR)
    (sharded / INDEX_FILE).write_text(json.dumps(index))
    rewrite(sharded, file, without_tensor)
    with pytest.raises(ModelFileError, match=TENSOR):
        load_engine(sharded)


def test_tensor_of_another_shape_is_named_with_both_shapes(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "m"
    shutil.copytree(whole, directory)
    rewrite(directory, SINGLE_FILE, lambda tensors: tensors.update({TENSOR: torch.zeros(5, 64)}))
    with pytest.raises(ModelFileError, match=r"up_proj.weight.*\[5, 64\].*\[96, 64\]"):
        load_engine(directory)


def test_tensor_that_the_model_type_does_not_have_is_refused(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "m"
    shutil.copytree(whole, directory)
    extra = "model.layers.0.self_attn.q_proj.bias"
    rewrite(directory, SINGLE_FILE, lambda tensors: tensors.update({extra: torch.zeros(64)}))
    with pytest.raises(ModelFileError, match=r"q_proj\.bias"):
        load_engine(directory)


@pytest.mark.parametrize("content", ["", "{", "[]"], ids=["empty", "cut", "a list"])
def test_broken_configuration_is_named(whole: Path, tmp_path: Path, content: str) -> None:
    directory = tmp_path / "m"
    shutil.copytree(whole, directory)
    (directory / "config.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        load_engine(directory)


def test_missing_files_are_named(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(ModelFileError, match=r"config\.json: missing"):
        load_engine(tmp_path)
    shutil.copy(whole / "config.json", tmp_path)
    with pytest.raises(ModelFileError, match=r"model\.safetensors: missing"):
        load_engine(tmp_path)


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tied", num_hidden_layers=1, tie_word_embeddings=True)


def test_copy_of_tied_embeddings_takes_no_memory_of_its_own(tied: Path) -> None:
    def add_copy(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    text = generate(load_engine(tied), [request("r", [5, 6, 7], 12)])
    rewrite(tied, SINGLE_FILE, add_copy)
    engine = load_engine(tied)
    decoder = engine._runner._model
    assert decoder.head.data_ptr() == decoder.embeddings.data_ptr()
    assert generate(engine, [request("r", [5, 6, 7], 12)]) == text


def test_head_that_differs_from_embeddings_said_to_be_tied_is_used_as_in_transformers(tied: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    head = torch.randn(256, 64, generator=generator)
    rewrite(tied, SINGLE_FILE, lambda tensors: tensors.update({"lm_head.weight": head}))
    prompt = [5, 6, 7]
    (output,) = generate(load_engine(tied), [request("r", prompt, 12)])
    assert output == oracle_greedy(load_oracle(tied), prompt, 12)


def test_pickled_weights_are_named_where_there_are_no_others(tmp_path: Path, whole: Path) -> None:
    shutil.copy(whole / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"model\.safetensors: missing.*pickled"):
        load_engine(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_quantized_tensor_is_refused_and_not_taken_for_numbers(
    whole: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    directory = tmp_path / "m"
    shutil.copytree(whole, directory)
    rewrite(directory, SINGLE_FILE, lambda tensors: tensors.update({TENSOR: tensors[TENSOR].to(dtype)}))
    with pytest.raises(ModelFileError, match=rf"{TENSOR}.*quantized to {dtype}"):
        load_engine(directory)


def test_unknown_model_type_is_refused_with_those_that_are_known(whole: Path, tmp_path: Path) -> None:
    config = json.loads((whole / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    with pytest.raises(UnsupportedModel, match=r"mamba.*llama"):
        load_engine(tmp_path)
