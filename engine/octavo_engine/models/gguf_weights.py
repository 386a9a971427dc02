"""Tensors of a GGUF file under the names that the Hugging Face checkpoint had, dequantized when read.

llama.cpp rotates neighbouring dimensions, so that the conversion reordered the rows of each head of
queries and keys; they are brought back. The many encodings are decoded by llama.cpp's `gguf` package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.models.weight_files import StoredTensor, require_shape

OUTSIDE: Final = {
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
FREQUENCY_DIVISORS: Final = "rope_freqs.weight"
"""Read as a part of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """Bytes of one tensor, mapped."""

    data: np.ndarray  # [rows, bytes of a row] uint8
    kind: Any


class GGUFWeights:
    """All tensors of one file; names that are not known stay as they are."""

    def __init__(self, file: GGUFFile) -> None:
        heads = file.integer("llama.attention.head_count", 1)
        self._heads = {"q_proj": heads, "k_proj": file.integer("llama.attention.head_count_kv", heads)}
        self._file_name = file.path.name
        self._encoded = _map_tensors(file)
        self.tensors = {
            checkpoint_name(name): StoredTensor(
                path=file.path, shape=tensor.shape, num_elements=prod(tensor.shape)
            )
            for name, tensor in file.tensors.items()
            if name != FREQUENCY_DIVISORS
        }

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor in float32; its shape must be the one that the configuration implies."""
        require_shape(self.tensors, name, shape, where=self._file_name)
        tensor = torch.from_numpy(_decode(name, self._encoded[name])).view(shape)
        heads = next((count for part, count in self._heads.items() if f".{part}." in name), None)
        return tensor if heads is None else _halves_of_neighbours(tensor, heads)


def checkpoint_name(name: str) -> str:
    """The name in a Hugging Face checkpoint.

    >>> checkpoint_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in IN_LAYER:
        return OUTSIDE.get(name, name)
    return f"model.layers.{match[1]}.{IN_LAYER[match[2]]}.{match[3]}"


def _map_tensors(file: GGUFFile) -> dict[str, _Encoded]:
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise ModelFileError(f"{file.path.name}: reading GGUF needs the package gguf: {error}") from error
    content = np.memmap(file.path, mode="r")
    encoded = {}
    for name, tensor in file.tensors.items():
        try:
            kind = GGMLQuantizationType(tensor.encoding)
        except ValueError as error:
            raise ModelFileError(f"tensor {name}: its encoding {tensor.encoding} is not known") from error
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        size = prod(tensor.shape) // per_block * block_bytes
        data = content[tensor.offset : tensor.offset + size]
        if len(data) < size:
            raise ModelFileError(f"{file.path.name}: truncated: tensor {name} lies beyond its end")
        rows = prod(tensor.shape[:-1])
        encoded[checkpoint_name(name)] = _Encoded(data=data.reshape(rows, -1), kind=kind)
    return encoded


def _decode(name: str, encoded: _Encoded) -> np.ndarray:
    """A copy in float32: a mapped file could change below a running engine."""
    from gguf import dequantize

    try:
        return np.array(dequantize(encoded.data, encoded.kind), dtype=np.float32)
    except NotImplementedError as error:
        raise ModelFileError(f"tensor {name}: cannot decode {encoded.kind.name}") from error


def _halves_of_neighbours(rows: Tensor, heads: int) -> Tensor:
    """Bring the two dimensions that turn together from side by side to half a head apart."""
    by_pair = rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return by_pair.transpose(1, 2).reshape(rows.shape)
