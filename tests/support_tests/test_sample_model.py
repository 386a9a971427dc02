"""The sample model is what its own repository would hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.sample_model import sample_model_dir
from tests.support.sample_model.gguf_weights import hugging_face_name, undo_interleaving


@pytest.fixture(scope="module")
def folder() -> Path:
    return sample_model_dir()


def read_json(path: Path) -> dict[str, object]:
    return json.loads(path.read_text())


@pytest.mark.model
def test_config_has_the_numbers_of_the_original(folder: Path) -> None:
    config = read_json(folder / "config.json")

    expected = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    assert {name: config[name] for name in expected} == expected


@pytest.mark.model
def test_weights_are_bfloat16_and_without_a_second_embedding(folder: Path) -> None:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        names = set(weights.keys())
        dtypes = {weights.get_slice(name).get_dtype() for name in names}

    assert len(names) == 272
    assert "lm_head.weight" not in names
    assert dtypes == {"BF16"}


@pytest.mark.model
def test_tokenizer_gives_the_ids_of_the_original(folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    assert tokenizer.encode("The capital of France is").ids == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("<|im_start|>user\nhi<|im_end|>").ids == [1, 4093, 198, 6004, 2]
    assert tokenizer.encode(" 123").ids == [216, 33, 34, 35]


@pytest.mark.model
def test_tokenizer_is_the_same_with_and_without_transformers(folder: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wrapped = AutoTokenizer.from_pretrained(folder)

    for text in ("Hello  world 12345\n\n isn't", "héllo 日本語 😀", " \t x", "3.14 1st"):
        ids = plain.encode(text).ids
        assert wrapped(text)["input_ids"] == ids
        assert plain.decode(ids) == text


@pytest.mark.model
def test_chat_template_names_the_assistant_when_no_system_message_is_given(folder: Path) -> None:
    from transformers import AutoTokenizer

    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )

    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.model
def test_the_command_prints_the_folder_alone_on_stdout(folder: Path) -> None:
    command = [sys.executable, "-m", "tests.support.sample_model"]

    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert printed == f"{folder}\n"


def test_every_part_of_a_layer_gets_its_hugging_face_name() -> None:
    assert hugging_face_name("token_embd.weight") == "model.embed_tokens.weight"
    assert hugging_face_name("blk.29.ffn_norm.weight") == "model.layers.29.post_attention_layernorm.weight"


def test_undo_interleaving_puts_the_first_halves_of_the_pairs_first() -> None:
    one_head = np.arange(6).reshape(6, 1)  # rotary pairs (0, 1), (2, 3), (4, 5)

    assert undo_interleaving(one_head, num_heads=1).ravel().tolist() == [0, 2, 4, 1, 3, 5]
