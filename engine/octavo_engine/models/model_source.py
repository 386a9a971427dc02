"""Where a model is read from: a folder with safetensors and config.json, or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo_engine.gguf_file import GGUFFile, find_gguf
from octavo_engine.gguf_tokens import num_named_tokens
from octavo_engine.models.gguf_config import read_gguf_config
from octavo_engine.models.gguf_weights import GGUFWeights
from octavo_engine.models.loading import read_model_json
from octavo_engine.models.nested_text import TextWeights, has_text_part
from octavo_engine.models.weight_files import WeightFiles, WeightSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model's configuration, and how its weights are opened once that was understood."""

    config: Mapping[str, object]
    folder: Path
    """Where further files may lie."""
    open_weights: Callable[[], WeightSource]
    num_named_ids: int | None = None
    """Ids below this are tokens by what the file says; None: it does not say."""


def open_model(path: Path) -> ModelSource:
    """Read the configuration of a folder or file; raises a `StartError` that names what is wrong."""
    gguf_path = find_gguf(path)
    if gguf_path is None:
        return _open_folder(path)
    file = GGUFFile(gguf_path)
    return ModelSource(
        config=read_gguf_config(file),
        folder=gguf_path.parent,
        open_weights=lambda: GGUFWeights(file),
        num_named_ids=num_named_tokens(file),
    )


def _open_folder(path: Path) -> ModelSource:
    config = read_model_json(path, "config.json", required=True)

    def open_weights() -> WeightSource:
        files = WeightFiles.of_model(path)
        return TextWeights(files) if has_text_part(config) else files

    return ModelSource(config=config, folder=path, open_weights=open_weights)
