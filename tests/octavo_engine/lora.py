"""Random LoRA adapters in PEFT's form, and what transformers generates with them merged into the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.octavo_engine.oracle import load_oracle

ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def save_adapter(
    folder: Path,
    model_dir: Path,
    *,
    seed: int = 0,
    rank: int = 4,
    alpha: float = 8.0,
    targets: Sequence[str] = ALL_TARGETS,
    **config: Any,
) -> Path:
    """An adapter strong enough to change every text; `config` is added to adapter_config.json."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, module in load_oracle(model_dir).named_modules():
        if name.rpartition(".")[2] in targets:
            prefix = f"base_model.model.{name}.lora_"
            out_size, in_size = module.weight.shape
            tensors[f"{prefix}A.weight"] = torch.randn((rank, in_size), generator=generator) * 0.2
            tensors[f"{prefix}B.weight"] = torch.randn((out_size, rank), generator=generator) * 0.2
    return write_adapter(
        folder,
        tensors,
        {"r": rank, "lora_alpha": alpha, "target_modules": list(targets), **PEFT_DEFAULTS, **config},
    )


PEFT_DEFAULTS: dict[str, Any] = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "somebody/some-model",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_bias": False,
    "lora_dropout": 0.05,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_type": "LORA",
    "peft_version": "0.18.0",
    "qalora_group_size": 16,
    "rank_pattern": {},
    "revision": None,
    "target_parameters": None,
    "task_type": "CAUSAL_LM",
    "trainable_token_indices": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
}
"""What PEFT writes for an adapter that uses nothing special."""


def write_adapter(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged_oracle(model_dir: Path, adapter: Path) -> Any:
    """The model in transformers with `scale * B @ A` added to its weights."""
    model = load_oracle(model_dir)
    config = json.loads((adapter / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])
    tensors = load_file(adapter / "adapter_model.safetensors")
    with torch.no_grad():
        for name in tensors:
            if name.endswith("lora_A.weight"):
                path = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                module = model.get_submodule(path)
                module.weight += scale * tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
    return model
