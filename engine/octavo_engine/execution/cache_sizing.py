"""How many blocks this engine holds: its own measurement, bounded by the operator's plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.kv_sizing import block_bytes
from octavo_engine.config import EngineConfig
from octavo_engine.execution.kv_cache import KVCache, KVCacheShape, group_layers
from octavo_engine.execution.loaded_model import LoadedModel
from octavo_engine.execution.model_runner import ModelRunner
from octavo_engine.memory import PeakMeter, cgroup_limit_bytes, kv_budget_bytes, require_room_for_blocks
from octavo_engine.plan_agreement import MeasuredMemory
from octavo_engine.scheduling.batch_layout import BatchLayout, GroupLayout, SpanLayout
from octavo_engine.scheduling.scheduler import DRAFTING_ROWS

UNASKED_POOL_BYTES: Final = 4 << 30
"""Of KV cache where neither a limit nor a plan says how much memory is meant for the engine: somebody
tries it on a machine that has other things to do."""

BOUND_ASKED: Final = "the number asked for"
BOUND_PLANNED: Final = "the plan"
BOUND_MEASURED: Final = "measured memory"
BOUND_USEFUL: Final = "what all sequences at full length could fill"
BOUND_UNASKED: Final = f"{UNASKED_POOL_BYTES >> 30} GiB, as no memory limit is set"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCount:
    """Blocks of the pool, and where the number comes from."""

    num_blocks: int
    bound: str
    """What kept it from being larger, in words."""
    measured: int
    planned: int | None
    """In this engine's own blocks, whatever the plan counted in."""
    memory: MeasuredMemory | None = None
    """Where the limit went; None where nothing was measured."""


def kv_cache_shape(config: EngineConfig, model: LoadedModel) -> KVCacheShape:
    """Groups of layers and the size of a block."""
    decoder = model.decoder.config
    latent = decoder.latent
    return KVCacheShape(
        groups=group_layers(
            [layer.window for layer in decoder.layers], chunked=decoder.family.chunked_windows
        ),
        block_size=config.block_size,
        num_kv_heads=decoder.num_kv_heads if latent is None else 1,
        key_dim=decoder.head_dim if latent is None else latent.cached_dim,
        value_dim=decoder.head_dim if latent is None else 0,
        dtype=model.kv_dtype,
    )


def decide_block_count(
    config: EngineConfig,
    model: LoadedModel,
    shape: KVCacheShape,
    *,
    limit_bytes: int,
    reserved_bytes: int,
    device: torch.device,
) -> BlockCount:
    """The lesser of what was measured and what was planned; exactly `num_kv_blocks` where that is set.

    `reserved_bytes` of weights are still to come: those of adapters.
    """
    planned = _planned_blocks(config, model, shape)
    if config.num_kv_blocks is not None:
        return BlockCount(
            num_blocks=config.num_kv_blocks,
            bound=BOUND_ASKED,
            measured=config.num_kv_blocks,
            planned=planned,
        )
    meter = _measure_step(config, model, shape, device)
    peak, attention = meter.peak_bytes(), _attention_bytes(config, model, shape)
    budget = kv_budget_bytes(
        limit_bytes=limit_bytes, peak_bytes=peak + reserved_bytes, attention_bytes=attention
    )
    measured = require_room_for_blocks(
        budget_bytes=budget, block_bytes=shape.block_bytes, limit_bytes=limit_bytes
    )
    bounds = {
        BOUND_MEASURED: measured,
        BOUND_USEFUL: config.max_num_seqs * _blocks_of_full_length(config, model, shape),
    }
    if planned is not None:
        bounds[BOUND_PLANNED] = planned
    elif config.memory_limit_bytes is None and cgroup_limit_bytes() is None:
        bounds[BOUND_UNASKED] = _unasked_blocks(config, model, shape)
    bound = min(bounds, key=lambda name: bounds[name])
    memory = MeasuredMemory(
        weights_bytes=model.weights_bytes + reserved_bytes,
        runtime_bytes=meter.before_bytes - model.weights_bytes,
        activation_bytes=peak - meter.before_bytes + attention,
        block_bytes=shape.block_bytes,
        num_blocks=measured,
    )
    return BlockCount(
        num_blocks=max(1, bounds[bound]), bound=bound, measured=measured, planned=planned, memory=memory
    )


def _planned_blocks(config: EngineConfig, model: LoadedModel, shape: KVCacheShape) -> int | None:
    """The plan counts blocks over all layers; where layers form several groups, ours are smaller."""
    if config.planned_kv_blocks is None or len(shape.groups) == 1:
        return config.planned_kv_blocks
    arch = parse_architecture(model.raw_config)
    if not isinstance(arch, ModelArchitecture):
        return config.planned_kv_blocks
    names = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    planned_block = block_bytes(arch, kv_dtype=names[shape.dtype], block_size=shape.block_size)
    return config.planned_kv_blocks * planned_block // shape.block_bytes


def _unasked_blocks(config: EngineConfig, model: LoadedModel, shape: KVCacheShape) -> int:
    """Blocks to take unasked; a context length that was asked for fits all the same."""
    by_default = UNASKED_POOL_BYTES // shape.block_bytes
    if config.max_model_len is None:
        return by_default
    return max(by_default, _blocks_of_full_length(config, model, shape))


def _blocks_of_full_length(config: EngineConfig, model: LoadedModel, shape: KVCacheShape) -> int:
    """Blocks that one sequence of full length holds at most."""
    return sum(
        group.max_blocks_held(
            model.declared_model_len,
            block_size=shape.block_size,
            max_chunk=config.max_num_batched_tokens,
        )
        for group in shape.groups
    )


def _measure_step(
    config: EngineConfig, model: LoadedModel, shape: KVCacheShape, device: torch.device
) -> PeakMeter:
    """Run the widest step against a pool of one block and see how high memory goes.

    One layer's tensors are gone before the next one's come, so that one layer of each kind shows the
    peak. All rows are alike and so choose the same experts, which is the most that an expert can get.
    """
    sparse = [layer.experts is not None for layer in model.decoder.config.layers]
    enough = max(sparse.index(kind) for kind in set(sparse)) + 1
    few_layers = replace(model.decoder, layers=model.decoder.layers[:enough])
    runner = ModelRunner(few_layers, KVCache(shape, num_blocks=1, device=device), device=device)
    num_tokens = min(config.max_num_batched_tokens, model.declared_model_len)
    meter = PeakMeter()
    runner.run(one_sequence_layout(shape, num_tokens, num_samples=min(_most_sample_rows(config), num_tokens)))
    return meter


def _most_sample_rows(config: EngineConfig) -> int:
    return max(config.max_num_seqs, DRAFTING_ROWS if config.speculative_ngram else 0)


def one_sequence_layout(shape: KVCacheShape, num_tokens: int, *, num_samples: int) -> BatchLayout:
    """A step of one sequence whose positions all lie in block 1: right in size, not in content."""
    size = shape.block_size
    span = SpanLayout(
        start=0,
        num_new_tokens=num_tokens,
        context_len=num_tokens,
        first_position=0,
        block_ids=(1,) * -(-num_tokens // size),
    )
    slots = [size + position % size for position in range(num_tokens)]
    return BatchLayout(
        token_ids=[0] * num_tokens,
        positions=list(range(num_tokens)),
        num_decodes=int(num_tokens == 1),
        sample_rows=list(range(num_tokens - num_samples, num_tokens)),
        sampled=(),
        groups=tuple(
            GroupLayout(window=group.window, chunked=group.chunked, slot_mapping=slots, spans=(span,))
            for group in shape.groups
        ),
    )


def _attention_bytes(config: EngineConfig, model: LoadedModel, shape: KVCacheShape) -> int:
    """What attention takes beyond the measured step when a chunk stands at the end of a long context.

    Keys and values are gathered once (twice where the cache has another dtype), and the mask holds
    one number for each pair of new and cached token. Soft-capped attention holds its scores as well,
    as they are, capped, and as weights.
    """
    context = model.declared_model_len
    gathered = context * shape.elements_per_token * (shape.dtype.itemsize + model.dtype.itemsize)
    pairs = context * min(config.max_num_batched_tokens, context)
    scores = 0
    if model.decoder.config.attention_softcap is not None:
        scores = pairs * model.decoder.config.num_heads * (2 * model.dtype.itemsize + 4)
    return gathered + scores + pairs * (model.dtype.itemsize + 1)
