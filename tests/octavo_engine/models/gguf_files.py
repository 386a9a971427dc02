"""Writes a Llama checkpoint as llama.cpp's converter does: its names, its order of rows, its metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from octavo_engine.models.gguf_weights import checkpoint_name

KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
}
PARTS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


def gguf_names(num_layers: int) -> dict[str, str]:
    """From the names in checkpoints to those in GGUF files."""
    names = ["token_embd.weight", "output_norm.weight", "output.weight"]
    names += [
        f"blk.{layer}.{part}.{kind}"
        for layer in range(num_layers)
        for part in PARTS
        for kind in ("weight", "bias")
    ]
    return {checkpoint_name(name): name for name in names}


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """As in llama.cpp's convert_hf_to_gguf.py (`permute`)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def write_gguf(
    source: Path,
    target: Path,
    *,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    metadata: Mapping[str, Any] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    architecture: str = "llama",
) -> Path:
    """Convert the checkpoint in `source`, its matrices in the encoding `kind`."""
    config = json.loads((source / "config.json").read_text())
    writer = GGUFWriter(target, architecture)
    for name, key in KEYS.items():
        writer.add_uint32(f"{architecture}.{key}", config[name])
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_float32(f"{architecture}.rope.freq_base", config["rope_parameters"]["rope_theta"])
    for key, value in {"tokenizer.ggml.eos_token_id": config["eos_token_id"], **(metadata or {})}.items():
        add_field(writer, key, value)
    names = gguf_names(config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in load_file(source / "model.safetensors").items():
        values = tensor.float().numpy()
        for part, count in heads.items():
            values = interleaved(values, count) if f".{part}." in name else values
        stored = kind if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(names[name], quantize(values, stored), raw_dtype=stored)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def add_field(writer: GGUFWriter, key: str, value: object) -> None:
    """A field of the type that the value has."""
    adders = {str: writer.add_string, list: writer.add_array, bool: writer.add_bool, int: writer.add_uint32}
    adders[type(value)](key, value)


def tokenizer_fields(
    tokenizer: Tokenizer, *, split: str, special: Collection[str], **others: Any
) -> dict[str, Any]:
    """What a converter writes of a byte-level tokenizer."""
    content = json.loads(tokenizer.to_str())
    by_id = {number: token for token, number in tokenizer.get_vocab().items()}
    tokens = [by_id[number] for number in range(len(by_id))]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    fields = {
        "model": "gpt2",
        "pre": split,
        "tokens": tokens,
        "merges": merges,
        "token_type": [3 if token in special else 1 for token in tokens],
        **others,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def round_matrices(folder: Path, kind: GGMLQuantizationType) -> None:
    """Replace a checkpoint's matrices by what is left of them after quantization."""
    tensors = load_file(folder / "model.safetensors")
    rounded = {
        name: torch.from_numpy(dequantize(quantize(tensor.numpy(), kind), kind))
        if tensor.ndim > 1
        else tensor
        for name, tensor in tensors.items()
    }
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})
