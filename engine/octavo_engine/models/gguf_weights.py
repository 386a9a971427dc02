"""Tensors of a GGUF file under the names that the Hugging Face checkpoint had, dequantized when read.

llama.cpp rotates neighbouring dimensions, so that the conversion reordered the rows of each head of
queries and keys; they are brought back.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.gguf_file import GGUFFile, GGUFTensor
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
READ_AS_CONFIGURATION: Final = "rope_freqs.weight"


class GGUFWeights:
    """All tensors of one file; the names that are not known stay as they are."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        heads = file.integer("llama.attention.head_count", 1)
        self._heads = {"q_proj": heads, "k_proj": file.integer("llama.attention.head_count_kv", heads)}
        self._stored = {
            checkpoint_name(name): tensor
            for name, tensor in file.tensors.items()
            if name != READ_AS_CONFIGURATION
        }
        self.tensors = {
            name: StoredTensor(
                path=file.path, shape=tensor.shape, num_elements=int(torch.Size(tensor.shape).numel())
            )
            for name, tensor in self._stored.items()
        }

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor in float32; its shape must be the one that the configuration implies."""
        require_shape(self.tensors, name, shape, where=self._file.path.name)
        tensor = torch.from_numpy(self._dequantize(name, self._stored[name]))
        heads = next((count for part, count in self._heads.items() if f".{part}." in name), None)
        return tensor if heads is None else _halves_of_neighbours(tensor, heads)

    def _dequantize(self, name: str, tensor: GGUFTensor) -> np.ndarray:
        from gguf import GGMLQuantizationType, dequantize

        try:
            values = dequantize(tensor.data, GGMLQuantizationType[tensor.kind])
        except NotImplementedError as error:
            raise ModelFileError(f"tensor {name}: cannot read the encoding {tensor.kind}") from error
        return np.array(values, dtype=np.float32).reshape(tensor.shape)


def checkpoint_name(name: str) -> str:
    """The name in a Hugging Face checkpoint.

    >>> checkpoint_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in IN_LAYER:
        return OUTSIDE.get(name, name)
    return f"model.layers.{match[1]}.{IN_LAYER[match[2]]}.{match[3]}"


def _halves_of_neighbours(rows: Tensor, heads: int) -> Tensor:
    """Bring the two dimensions that turn together from side by side to half a head apart."""
    by_pair = rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return by_pair.transpose(1, 2).reshape(rows.shape)
