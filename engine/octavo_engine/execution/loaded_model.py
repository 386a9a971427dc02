"""From a model directory to a model in memory, with every check that can be made before reading weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from octavo.dtypes import resolve_model_dtype
from octavo.errors import InvalidSpec
from octavo_engine.config import EngineConfig
from octavo_engine.memory import require_room_for_weights
from octavo_engine.models.decoder import Decoder
from octavo_engine.models.decoder_config import DecoderConfig, parse_decoder_config
from octavo_engine.models.loading import DTYPES, build_ropes, load_decoder
from octavo_engine.models.model_source import open_model
from octavo_engine.models.token_ids import read_eos_token_ids, read_num_token_ids

KV_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, what was read beside its weights, and what it takes."""

    decoder: Decoder
    raw_config: Mapping[str, object]
    dtype: torch.dtype
    kv_dtype: torch.dtype
    weights_bytes: int
    num_token_ids: int
    eos_token_ids: frozenset[int]
    declared_model_len: int
    """The context length asked for, or else the model's own."""


def load_model(
    config: EngineConfig, *, limit_bytes: int, device: torch.device, progress: Callable[[str, float], None]
) -> LoadedModel:
    """Read configuration and weights; raises a `StartError` that names what is wrong."""
    source = open_model(config.model_dir)
    raw = source.config
    decoder_config = parse_decoder_config(raw)
    dtype = DTYPES[resolve_model_dtype(decoder_config.dtype, config.dtype)]
    model_len = _declared_model_len(config, decoder_config)
    ropes = build_ropes(decoder_config, max_model_len=model_len, device=device)
    files = source.open_weights()
    weights_bytes = sum(stored.num_elements for stored in files.tensors.values()) * dtype.itemsize
    require_room_for_weights(weights_bytes=weights_bytes, limit_bytes=limit_bytes)
    num_token_ids = read_num_token_ids(
        source.folder, vocab_size=decoder_config.vocab_size, num_named_ids=source.num_named_ids
    )
    decoder = load_decoder(
        files,
        decoder_config,
        dtype=dtype,
        device=device,
        num_token_ids=num_token_ids,
        ropes=ropes,
        progress=lambda share: progress("loading weights", share),
    )
    return LoadedModel(
        decoder=decoder,
        raw_config=raw,
        dtype=dtype,
        kv_dtype=KV_DTYPES.get(config.kv_cache_dtype, dtype),
        weights_bytes=weights_bytes,
        num_token_ids=num_token_ids,
        eos_token_ids=read_eos_token_ids(source.folder, raw),
        declared_model_len=model_len,
    )


def _declared_model_len(config: EngineConfig, decoder_config: DecoderConfig) -> int:
    longest = decoder_config.longest_context
    if config.max_model_len is not None and config.max_model_len > longest:
        raise InvalidSpec(f"max_model_len: {config.max_model_len} is beyond the model's own {longest}")
    return config.max_model_len or decoder_config.max_position_embeddings
