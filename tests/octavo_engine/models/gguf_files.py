"""Writes a checkpoint as llama.cpp's converter does: its names, its order of rows, its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, dequantize, get_tensor_name_map, quantize
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

KEYS = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
}
ARCHITECTURE_OF_TYPE = {
    "mistral": "llama",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
}
EXPERT_KEYS = {
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
PERMUTED = ("llama", "smollm3")
NORMS_PLUS_ONE = ("gemma2", "gemma3")
ONE_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")


def further_fields(architecture: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the converter writes for some architectures only."""
    if "num_experts_per_tok" in config:
        return {key: config[name] for name, key in EXPERT_KEYS.items() if name in config}
    rope = config["rope_parameters"]
    head = {f"attention.{kind}_length": config.get("head_dim") for kind in ("key", "value")}
    if architecture == "phi3":
        width = config["hidden_size"] // config["num_attention_heads"]
        return {
            "attention.sliding_window": config["sliding_window"] or 0,
            "rope.dimension_count": int(width * rope.get("partial_rotary_factor", 1.0)),
            "rope.scaling.original_context_length": config["original_max_position_embeddings"],
        }
    if architecture == "gemma2":
        caps = {name: config[name] for name in ("attn_logit_softcapping", "final_logit_softcapping")}
        return {**head, **caps, "attention.sliding_window": config["sliding_window"]}
    if architecture == "gemma3":
        full, local = rope["full_attention"], rope["sliding_attention"]
        scaled = {"rope.scaling.type": full["rope_type"], "rope.scaling.factor": full.get("factor")}
        return {
            **head,
            **(scaled if full["rope_type"] == "linear" else {}),
            "rope.freq_base": full["rope_theta"],
            "rope.freq_base_swa": local["rope_theta"],
            "attention.sliding_window": config["sliding_window"],
        }
    return head


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
    architecture: str | None = None,
) -> Path:
    """Convert the checkpoint in `source`, its matrices in the encoding `kind`."""
    config = json.loads((source / "config.json").read_text())
    model_type = config["model_type"]
    architecture = architecture or ARCHITECTURE_OF_TYPE.get(model_type, model_type)
    writer = GGUFWriter(target, architecture)
    fields = {key: config[name] for name, key in KEYS.items()}
    fields["attention.layer_norm_rms_epsilon"] = config["rms_norm_eps"]
    if architecture not in NORMS_PLUS_ONE:
        fields["rope.freq_base"] = float(config["rope_parameters"]["rope_theta"])
    fields |= {key: value for key, value in further_fields(architecture, config).items() if value is not None}
    for key, value in fields.items():
        add_field(writer, f"{architecture}.{key}", value)
    for key, value in {"tokenizer.ggml.eos_token_id": config["eos_token_id"], **(metadata or {})}.items():
        add_field(writer, key, value)
    for name, values in converted(source, architecture, config).items():
        stored = kind if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(values, stored), raw_dtype=stored)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def converted(source: Path, architecture: str, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All tensors under llama.cpp's names, changed as its converter changes them."""
    arch = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(arch, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    result = {}
    for name, values in with_stacked_experts(load_file(source / "model.safetensors")).items():
        for part, count in heads.items():
            if architecture in PERMUTED and f".{part}." in name:
                values = interleaved(values, count)
        if architecture in NORMS_PLUS_ONE and name.endswith("norm.weight"):
            values = values + 1
        plain, _, ending = name.rpartition(".")
        result[f"{names.get_name(plain)}.{ending}"] = values
    return result


def with_stacked_experts(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """One tensor for the same matrix of all experts."""
    plain: dict[str, np.ndarray] = {}
    experts: dict[str, list[np.ndarray]] = {}
    for name in sorted(tensors):  # fewer than ten experts: in order of their numbers
        values = tensors[name].float().numpy()
        match = ONE_EXPERT.fullmatch(name)
        if match is None:
            plain[name] = values
        else:
            experts.setdefault(f"{match[1]}.{match[3]}.weight", []).append(values)
    return plain | {name: np.stack(matrices) for name, matrices in experts.items()}


def add_field(writer: GGUFWriter, key: str, value: object) -> None:
    """A field of the type that the value has."""
    adders = {
        str: writer.add_string,
        list: writer.add_array,
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
    }
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
