"""Tensors of a GGUF file under the names that the Hugging Face checkpoint had, dequantized when read.

What the conversion changed is changed back: rows of queries and keys that were reordered for llama.cpp's
rotation, and norms that hold the one which Gemma adds. A tensor that holds a matrix of every expert is
as many tensors here. The many encodings are decoded by llama.cpp's `gguf` package.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.gguf_file import GGUFFile, GGUFTensor
from octavo_engine.models.gguf_architectures import GGUFArchitecture
from octavo_engine.models.gguf_config import READ_AS_CONFIG, gguf_architecture
from octavo_engine.models.weight_files import StoredTensor, require_shape

OUTSIDE: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """Bytes of one tensor, mapped."""

    data: np.ndarray  # [rows, bytes of a row] uint8
    kind: Any
    shape: tuple[int, ...]


class GGUFWeights:
    """All tensors of one file; names that are not known stay as they are."""

    def __init__(self, file: GGUFFile) -> None:
        self._architecture = gguf_architecture(file)
        name = file.fields.get("general.architecture")
        heads = file.integer(f"{name}.attention.head_count", 1)
        if self._architecture.neighbours_paired:
            kv_heads = file.integer(f"{name}.attention.head_count_kv", heads)
            self._heads = {"q_proj": heads, "k_proj": kv_heads}
        else:
            self._heads = {}
        self._file_name = file.path.name
        self._encoded = _map_tensors(file, self._architecture)
        self.tensors = {
            name: StoredTensor(path=file.path, shape=encoded.shape, num_elements=prod(encoded.shape))
            for name, encoded in self._encoded.items()
        }

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor in float32; its shape must be the one that the configuration implies."""
        require_shape(self.tensors, name, shape, where=self._file_name)
        tensor = torch.from_numpy(_decode(name, self._encoded[name])).view(shape)
        if self._architecture.norms_hold_one and name.endswith("norm.weight"):
            return tensor - 1
        heads = next((count for part, count in self._heads.items() if f".{part}." in name), None)
        return tensor if heads is None else _halves_of_neighbours(tensor, heads)


def checkpoint_names(name: str, architecture: GGUFArchitecture, num_experts: int) -> list[str]:
    """The name in a Hugging Face checkpoint; of a tensor that holds all experts, one name for each.

    >>> from octavo_engine.models.gguf_architectures import ARCHITECTURES
    >>> checkpoint_names("blk.3.attn_q.weight", ARCHITECTURES["llama"], 0)
    ['model.layers.3.self_attn.q_proj.weight']
    """
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None:
        return [OUTSIDE.get(name, name)]
    layer, part, kind = match.groups()
    if part in architecture.expert_names:
        pattern = architecture.expert_names[part]
        return [f"model.layers.{layer}.{pattern.format(index)}.{kind}" for index in range(num_experts)]
    plain = architecture.layer_names.get(part)
    return [name if plain is None else f"model.layers.{layer}.{plain}.{kind}"]


def _map_tensors(file: GGUFFile, architecture: GGUFArchitecture) -> dict[str, _Encoded]:
    content = np.memmap(file.path, mode="r")
    encoded: dict[str, _Encoded] = {}
    for name, tensor in file.tensors.items():
        if name in READ_AS_CONFIG:
            continue
        whole = _encoded(file.path.name, name, tensor, content)
        names = checkpoint_names(name, architecture, tensor.shape[0])
        encoded |= _split(whole, names) if len(names) > 1 else {names[0]: whole}
    return encoded


def _encoded(file_name: str, name: str, tensor: GGUFTensor, content: np.ndarray) -> _Encoded:
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError as error:
        raise ModelFileError(f"{file_name}: reading GGUF needs the package gguf: {error}") from error
    try:
        kind = GGMLQuantizationType(tensor.encoding)
    except ValueError as error:
        raise ModelFileError(f"tensor {name}: its encoding {tensor.encoding} is not known") from error
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    size = prod(tensor.shape) // per_block * block_bytes
    data = content[tensor.offset : tensor.offset + size]
    if len(data) < size:
        raise ModelFileError(f"{file_name}: truncated: tensor {name} lies beyond its end")
    return _Encoded(data=data.reshape(prod(tensor.shape[:-1]), -1), kind=kind, shape=tensor.shape)


def _split(whole: _Encoded, names: list[str]) -> dict[str, _Encoded]:
    """One tensor for each index of the outermost dimension."""
    parts = whole.data.reshape(len(names), -1, whole.data.shape[-1])
    return {
        name: replace(whole, data=part, shape=whole.shape[1:])
        for name, part in zip(names, parts, strict=True)
    }


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
