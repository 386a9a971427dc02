"""From a folder with a LoRA adapter in PEFT's form to its parts for a decoder's projections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError, UnsupportedModel
from octavo_engine.models.adaptable import AdaptableDecoder, Site
from octavo_engine.models.adaptation import LowRank
from octavo_engine.models.adapter_config import MERGE, AdapterConfig, read_adapter_config
from octavo_engine.models.weight_files import WeightFiles

WEIGHTS_FILE: Final = "adapter_model.safetensors"
PICKLED_FILE: Final = "adapter_model.bin"
TENSOR_NAME: Final = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_[AB]\.weight")


def read_adapter(folder: Path, model: AdaptableDecoder, *, max_rank: int) -> dict[str, LowRank]:
    """An adapter's parts by module name; raises a `StartError` that names what does not fit."""
    config = read_adapter_config(folder, max_rank=max_rank)
    files = _open(folder)
    modules = {_module_of(name, model.sites): None for name in files.tensors}
    if not modules:
        raise ModelFileError(f"{WEIGHTS_FILE}: holds no tensor")
    return {name: _read_part(files, name, model.sites[name], config, model) for name in modules}


def _open(folder: Path) -> WeightFiles:
    path = folder / WEIGHTS_FILE
    if path.is_file():
        return WeightFiles([path])
    if (folder / PICKLED_FILE).exists():
        raise UnsupportedModel(
            f"{PICKLED_FILE}: pickled tensors can run code and are not read; save the adapter as safetensors"
        )
    raise ModelFileError(f"{WEIGHTS_FILE}: missing from {folder}")


def _module_of(tensor: str, sites: Mapping[str, Site]) -> str:
    match = TENSOR_NAME.fullmatch(tensor)
    module = match["module"] if match is not None else None
    if module is None or module not in sites:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in sites})) or "no projection"
        raise UnsupportedModel(
            f"{WEIGHTS_FILE}: tensor {tensor} is for no projection that can be adapted in this model "
            f"({known}); train with these target_modules only, or {MERGE}"
        )
    return module


def _read_part(
    files: WeightFiles, module: str, site: Site, config: AdapterConfig, model: AdaptableDecoder
) -> LowRank:
    prefix = f"base_model.model.{module}.lora_"
    down = files.read(f"{prefix}A.weight", (config.rank, site.in_size))
    up = files.read(f"{prefix}B.weight", (site.out_size, config.rank))

    def place(weight: Tensor) -> Tensor:
        placed = weight.T.to(model.device, model.dtype, copy=True).contiguous()
        if not bool(torch.isfinite(placed).all()):
            raise UnsupportedModel(f"{WEIGHTS_FILE}: {module}: holds numbers not finite in {model.dtype}")
        return placed

    return LowRank(down=place(down), up=place(up.to(torch.float32) * config.scale))
