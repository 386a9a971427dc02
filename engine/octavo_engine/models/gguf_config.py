"""A GGUF file's metadata as the `config.json` that it was converted from.

Only the architecture `llama` (Llama, Mistral and their like) is read. A field of it that is not known
here may change what the model computes, so that it is refused by name.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from octavo_engine.errors import UnsupportedModel
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.models.gguf_weights import FREQUENCY_DIVISORS

ARCHITECTURE: Final = "llama"
FIELDS: Final = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
CHECKED: Final = ("attention.value_length", "rope.dimension_count", "expert_count", "expert_used_count")
SCALING: Final = ("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length")
WITHOUT_EFFECT: Final = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout")
"""The vocabulary's size is that of the embeddings."""
END_FIELDS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
DTYPE_OF_ENCODING: Final = {0: "float32", 1: "float16"}
"""Of what is stored; everything else, quantized or not, is brought to bfloat16."""


def read_gguf_config(file: GGUFFile) -> dict[str, object]:
    """The configuration; raises `UnsupportedModel` that names the field it stumbles on."""
    architecture = file.fields.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise UnsupportedModel(f"general.architecture: {architecture!r} in a GGUF file; only llama is read")
    _require_known(file)
    embeddings, ends = (
        file.tensors.get("token_embd.weight"),
        (f"tokenizer.ggml.{name}" for name in END_FIELDS),
    )
    config = {name: _value(file, field) for field, name in FIELDS.items()} | {
        "model_type": "llama",
        "vocab_size": embeddings.shape[0] if embeddings is not None else None,
        "rope_scaling": _scaling(file),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "eos_token_id": [file.fields.get(name) for name in ends if name in file.fields],
        "dtype": _dtype(file),
    }
    _require_whole_heads(file, config)
    return config


def _value(file: GGUFFile, name: str) -> object:
    return file.fields.get(f"{ARCHITECTURE}.{name}")


def _require_known(file: GGUFFile) -> None:
    known = {f"{ARCHITECTURE}.{name}" for name in (*FIELDS, *CHECKED, *SCALING, *WITHOUT_EFFECT)}
    unknown = sorted(name for name in set(file.fields) - known if name.startswith(f"{ARCHITECTURE}."))
    if unknown:
        raise UnsupportedModel(
            f"{unknown[0]}: {file.fields.get(unknown[0])!r} in a GGUF file is not understood"
        )
    if _value(file, "expert_count"):
        raise UnsupportedModel(f"llama.expert_count: {_value(file, 'expert_count')}: no experts from GGUF")


def _require_whole_heads(file: GGUFFile, config: dict[str, object]) -> None:
    """All dimensions of a head are rotated, and values are as wide as keys."""
    hidden = file.integer("llama.embedding_length", 0)
    head_dim = config["head_dim"] or hidden // max(1, file.integer("llama.attention.head_count", 1))
    for name in ("rope.dimension_count", "attention.value_length"):
        if (_value(file, name) or head_dim) != head_dim:
            raise UnsupportedModel(f"llama.{name}: {_value(file, name)} in heads of {head_dim}")


def _scaling(file: GGUFFile) -> dict[str, object] | None:
    """Llama 3 leaves its scaling as a divisor for each frequency, which is how LongRoPE writes any."""
    divisors = file.tensors.get(FREQUENCY_DIVISORS)
    if divisors is not None:
        factors = np.fromfile(
            file.path, dtype="<f4", count=prod(divisors.shape), offset=divisors.offset
        ).tolist()
        return {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "attention_factor": 1.0,
        }
    kind, factor, original = (_value(file, name) for name in SCALING)
    if kind in (None, "none"):
        return None
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    return {name: value for name, value in scaling.items() if value is not None}


def _dtype(file: GGUFFile) -> str:
    """The type of the matrices, where all have one that can be served as it is."""
    encodings = {tensor.encoding for tensor in file.tensors.values() if len(tensor.shape) > 1}
    return DTYPE_OF_ENCODING.get(encodings.pop(), "bfloat16") if len(encodings) == 1 else "bfloat16"
