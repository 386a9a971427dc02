"""From a model directory to a `Decoder`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from octavo_engine.errors import ModelFileError
from octavo_engine.models.decoder import Decoder
from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.layer_loading import LayerLoader
from octavo_engine.models.rope import RotaryEmbedding
from octavo_engine.models.rope_config import RopeConfig
from octavo_engine.models.tensor_reading import TensorReader
from octavo_engine.models.weight_files import WeightSource

HEAD: Final = "lm_head.weight"
IGNORABLE: Final = ("rotary_emb.inv_freq",)
"""Derived buffers of old checkpoints."""

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


def read_model_json(model_dir: Path, name: str, *, required: bool) -> dict[str, object]:
    """A JSON object beside the weights; `{}` where it is absent and not required."""
    path = model_dir / name
    if not path.exists():
        if required:
            raise ModelFileError(f"{name}: missing from {model_dir}")
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ModelFileError(f"{name}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{name}: must hold an object, got {type(content).__name__}")
    return content


def load_decoder(
    files: WeightSource,
    config: DecoderConfig,
    *,
    dtype: torch.dtype,
    device: torch.device,
    num_token_ids: int,
    ropes: dict[RopeConfig, RotaryEmbedding],
    progress: Callable[[float], None],
) -> Decoder:
    """Read everything, a layer at a time; `progress` gets the share of layers that are loaded."""
    reader = TensorReader(files, dtype=dtype, device=device)
    table = (config.vocab_size, config.hidden_size)
    embeddings = reader.tensor("model.embed_tokens.weight", table)
    head = _read_head(reader, embeddings, tied=config.tied_embeddings)
    loader, layers = LayerLoader(reader, config), []
    for index in range(len(config.layers)):
        layers.append(loader.load(index))
        progress((index + 1) / len(config.layers))
    final_norm = loader.norm("model.norm")
    reader.require_all_used(ignorable=IGNORABLE)
    scale = torch.tensor(config.hidden_size**0.5, dtype=dtype, device=device)
    return Decoder(
        config=config,
        embeddings=embeddings,
        embedding_scale=scale if config.family.scaled_embeddings else None,
        layers=tuple(layers),
        ropes=ropes,
        final_norm=final_norm,
        head=head[:num_token_ids],
    )


def _read_head(reader: TensorReader, embeddings: Tensor, *, tied: bool) -> Tensor:
    """The embeddings themselves, where they are tied and the files do not hold another head all the same.

    As in `transformers`: a head that was trained on is not given up for a field that was left behind.
    """
    if tied and not reader.has(HEAD):
        return embeddings
    head = reader.tensor(HEAD, tuple(embeddings.shape))
    return embeddings if tied and torch.equal(head, embeddings) else head


def build_ropes(
    config: DecoderConfig, *, max_model_len: int, device: torch.device
) -> dict[RopeConfig, RotaryEmbedding]:
    """The model's rotary embeddings; raises `UnsupportedModel` where a scaling lacks a number."""
    configs = {layer.rope for layer in config.layers if layer.rope is not None}
    return {rope: RotaryEmbedding(rope, max_model_len=max_model_len, device=device) for rope in configs}
