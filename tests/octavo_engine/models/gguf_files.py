"""Writes a Llama checkpoint as llama.cpp's converter does: its names, its order of rows, its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from safetensors.torch import load_file, save_file

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
    writer.add_uint32("tokenizer.ggml.eos_token_id", config["eos_token_id"])
    for key, value in (metadata or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(key, value)
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
