"""A Llama model's numbers out of a GGUF file, under the names and in the order that Hugging Face uses.

Source: the GGUF specification and llama.cpp's `convert_hf_to_gguf.py`, whose steps are undone here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

OUTSIDE_LAYERS: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read_metadata(reader: GGUFReader) -> dict[str, object]:
    return {name: field.contents() for name, field in reader.fields.items()}


def read_weights(reader: GGUFReader, metadata: Mapping[str, object]) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor as (Hugging Face name, bfloat16 values)."""
    heads = {
        "attn_q": metadata["llama.attention.head_count"],
        "attn_k": metadata["llama.attention.head_count_kv"],
    }
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if kind in heads:
            values = undo_interleaving(values, num_heads=int(str(heads[kind])))
        yield hugging_face_name(tensor.name), torch.from_numpy(values.copy()).to(torch.bfloat16)


def hugging_face_name(gguf_name: str) -> str:
    """
    >>> hugging_face_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    if gguf_name in OUTSIDE_LAYERS:
        return OUTSIDE_LAYERS[gguf_name]
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{IN_LAYER[part]}.{suffix}"


def undo_interleaving(weight: np.ndarray, *, num_heads: int) -> np.ndarray:
    """Rows of a head back from rotary pairs side by side (0, h, 1, h+1, …) to halves (0, 1, …, h, h+1, …)."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def open_gguf(path: Path) -> GGUFReader:
    return GGUFReader(path)
