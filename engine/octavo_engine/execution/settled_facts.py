"""What became of the arguments of an engine once its model was read and its memory measured."""

from __future__ import annotations

from collections import Counter

import torch

from octavo_engine.config import EngineConfig
from octavo_engine.engine_facts import EngineFacts, LayerKernels
from octavo_engine.execution.cache_sizing import BlockCount
from octavo_engine.execution.kv_cache import KVCacheShape
from octavo_engine.execution.loaded_model import LoadedModel
from octavo_engine.kernels import reference
from octavo_engine.models.decoder_config import DecoderConfig
from octavo_engine.models.layer_config import LayerConfig


def settle_facts(
    config: EngineConfig,
    model: LoadedModel,
    shape: KVCacheShape,
    count: BlockCount,
    *,
    limit_bytes: int,
    capacity_tokens: int,
) -> EngineFacts:
    """Put together what an engine runs with; adapters and speed come on top."""
    return EngineFacts(
        device=config.device,
        dtype=_name(model.dtype),
        kv_dtype=_name(model.kv_dtype),
        kernels=_kernels(model.decoder.config),
        block_size=config.block_size,
        block_bytes=shape.block_bytes,
        num_kv_blocks=count.num_blocks,
        kv_blocks_bound=count.bound,
        measured_kv_blocks=count.measured,
        planned_kv_blocks=count.planned,
        capacity_tokens=capacity_tokens,
        context_len=model.declared_model_len,
        max_model_len=min(model.declared_model_len, capacity_tokens),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_waiting=config.max_waiting,
        prefix_caching=config.enable_prefix_caching,
        speculative_ngram=config.speculative_ngram,
        kv_bytes_per_token=shape.block_bytes * len(shape.groups) // shape.block_size,
        weights_bytes=model.weights_bytes,
        memory_limit_bytes=limit_bytes,
        num_threads=torch.get_num_threads(),
        eos_token_ids=model.eos_token_ids,
        vocab_size=model.num_token_ids,
        revision=config.revision,
        max_adapters=config.max_adapters,
    )


def _kernels(config: DecoderConfig) -> tuple[LayerKernels, ...]:
    """Attention and feed-forward part of each layer, counted by kind."""
    kinds = Counter(kind for layer in config.layers for kind in _kinds(config, layer))
    return tuple(
        LayerKernels(kind=kind, num_layers=count, path=reference.NAME, reason=reference.REASON)
        for kind, count in sorted(kinds.items())
    )


def _kinds(config: DecoderConfig, layer: LayerConfig) -> tuple[str, str]:
    windowed = "chunked" if config.family.chunked_windows else "sliding"
    span = "full" if layer.window is None else windowed
    attention = "latent" if config.latent is not None else span
    return f"{attention} attention", "dense MLP" if layer.experts is None else "experts"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
