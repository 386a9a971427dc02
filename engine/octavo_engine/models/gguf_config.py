"""A GGUF file's metadata as the `config.json` that it was converted from.

A field of an architecture that is not known here may change what the model computes, so that it is
refused by name.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from octavo_engine.errors import UnsupportedModel
from octavo_engine.gguf_file import GGUFFile
from octavo_engine.gguf_tokens import CONTROL, USER_DEFINED, token_kinds, token_texts
from octavo_engine.models.gguf_architectures import ARCHITECTURES, LLAMA_WITH_EXPERTS, GGUFArchitecture

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
"""Of every architecture."""
CHECKED: Final = ("attention.value_length", "rope.dimension_count", "expert_count", "expert_used_count")
SCALING: Final = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
WITHOUT_EFFECT: Final = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout")
"""The vocabulary's size is that of the embeddings."""
END_FIELDS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
END_TEXTS: Final = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>")
"""Tokens that end a turn whatever the fields say: many files state only the one that ends a document."""
DTYPE_OF_ENCODING: Final = {0: "float32", 1: "float16"}
"""Of what is stored; everything else, quantized or not, is brought to bfloat16."""
FREQUENCY_DIVISORS: Final = "rope_freqs.weight"
SHORT_DIVISORS: Final = "rope_factors_short.weight"
LONG_DIVISORS: Final = "rope_factors_long.weight"
READ_AS_CONFIG: Final = (FREQUENCY_DIVISORS, SHORT_DIVISORS, LONG_DIVISORS)
"""Tensors that are a part of the configuration."""


def gguf_architecture(file: GGUFFile) -> GGUFArchitecture:
    """The architecture that a file states."""
    name = _name(file)
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModel(f"general.architecture: {name!r} in a GGUF file is not one of {known}")
    return LLAMA_WITH_EXPERTS if name == "llama" and _value(file, "expert_count") else architecture


def read_gguf_config(file: GGUFFile) -> dict[str, object]:
    """The configuration; raises `UnsupportedModel` that names the field it stumbles on."""
    architecture = gguf_architecture(file)
    fields = FIELDS | dict(architecture.fields)
    _require_known(file, fields)
    stated = {name: _value(file, field) for field, name in fields.items()}
    config = (
        {"rope_theta": 10000.0}
        | dict(architecture.implied)
        | {k: v for k, v in stated.items() if v is not None}
    )
    config |= {
        "model_type": architecture.model_type,
        "rope_scaling": _scaling(file),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "eos_token_id": _ends(file),
        "dtype": _dtype(file),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
    }
    embeddings = file.tensors.get("token_embd.weight")
    if embeddings is not None:
        config["vocab_size"] = embeddings.shape[0]
    config["sliding_window"] = config.get("sliding_window") or None  # Phi-3 writes 0 for none
    return config | _heads(file, architecture)


def _name(file: GGUFFile) -> str:
    return str(file.fields.get("general.architecture"))


def _value(file: GGUFFile, name: str) -> object:
    return file.fields.get(f"{_name(file)}.{name}")


def _require_known(file: GGUFFile, fields: dict[str, str]) -> None:
    prefix = f"{_name(file)}."
    known = {prefix + name for name in (*fields, *CHECKED, *SCALING, *WITHOUT_EFFECT)}
    unknown = sorted(name for name in set(file.fields) - known if name.startswith(prefix))
    if unknown:
        raise UnsupportedModel(
            f"{unknown[0]}: {file.fields.get(unknown[0])!r:.60} in a GGUF file is not understood"
        )
    if _value(file, "expert_count") and "expert_count" not in gguf_architecture(file).fields:
        raise UnsupportedModel(f"{prefix}expert_count: this architecture has no experts")


def _heads(file: GGUFFile, architecture: GGUFArchitecture) -> dict[str, object]:
    """What follows from a head's width: what of it is rotated, and by what queries are scaled."""
    name = _name(file)
    num_heads = max(1, file.integer(f"{name}.attention.head_count", 1))
    per_head = file.integer(f"{name}.embedding_length", 0) // num_heads
    head_dim = file.integer(f"{name}.attention.key_length", per_head)
    rotated = file.integer(f"{name}.rope.dimension_count", head_dim)
    if rotated != head_dim and not architecture.partly_rotated:
        raise UnsupportedModel(f"{name}.rope.dimension_count: {rotated} in heads of {head_dim}")
    if file.integer(f"{name}.attention.value_length", head_dim) != head_dim:
        raise UnsupportedModel(f"{name}.attention.value_length: not the {head_dim} of keys")
    wide = file.integer(f"{name}.block_count", 0) == architecture.wide_heads_from_layer_count
    return {
        "head_dim": head_dim,
        "num_key_value_heads": file.integer(f"{name}.attention.head_count_kv", num_heads),
        "partial_rotary_factor": rotated / max(1, head_dim),
        "query_pre_attn_scalar": per_head if wide else head_dim,
    }


def _ends(file: GGUFFile) -> list[object]:
    names = (f"tokenizer.ggml.{name}" for name in END_FIELDS)
    stated = [file.fields[name] for name in names if name in file.fields]
    marked = zip(token_texts(file, "tokens"), token_kinds(file), strict=False)
    found = [
        number
        for number, (text, kind) in enumerate(marked)
        if text in END_TEXTS and kind in (CONTROL, USER_DEFINED)
    ]
    return [*stated, *found]


def _scaling(file: GGUFFile) -> dict[str, object] | None:
    """Llama 3 leaves its scaling as a divisor for each frequency, which is how LongRoPE writes any."""
    if FREQUENCY_DIVISORS in file.tensors:
        divisors = _numbers(file, FREQUENCY_DIVISORS)
        return _longrope(divisors, divisors) | {"attention_factor": 1.0}
    stated = {name: _value(file, field) for field, name in SCALING.items()}
    scaling = {name: value for name, value in stated.items() if value is not None}
    if SHORT_DIVISORS in file.tensors and LONG_DIVISORS in file.tensors:
        return scaling | _longrope(_numbers(file, SHORT_DIVISORS), _numbers(file, LONG_DIVISORS))
    return None if scaling.get("rope_type", "none") == "none" else scaling


def _longrope(short: list[float], long: list[float]) -> dict[str, object]:
    return {"rope_type": "longrope", "short_factor": short, "long_factor": long}


def _numbers(file: GGUFFile, name: str) -> list[float]:
    tensor = file.tensors[name]
    count = prod(tensor.shape)
    return [float(x) for x in np.fromfile(file.path, dtype="<f4", count=count, offset=tensor.offset)]


def _dtype(file: GGUFFile) -> str:
    """The type of the matrices, where all have one that can be served as it is."""
    encodings = {tensor.encoding for tensor in file.tensors.values() if len(tensor.shape) > 1}
    return DTYPE_OF_ENCODING.get(encodings.pop(), "bfloat16") if len(encodings) == 1 else "bfloat16"
