"""Bytes and blocks of a KV cache, from a model's numbers alone.

Terms: a *block* holds the keys and values of `block_size` consecutive tokens of one sequence, for
every layer of one KV-cache group.
Source: PagedAttention, arXiv 2309.06180, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.architecture import ModelArchitecture
from octavo.dtypes import resolve_kv_dtype_name, resolve_model_dtype
from octavo.kv_groups import (
    KVLayout,
    blocks_of_kind,
    build_layout,
    elements_of,
    state_bytes,
    token_bytes,
)
from octavo.layers import AttentionCache, Cache, CrossCache, LatentCache


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBytes:
    """What the keys and values of one sequence take on one device, counted in three ways."""

    windowed: int
    """As our engine allocates: whole blocks, windows exploited."""
    windowed_ideal: int
    """Windows exploited, without any rounding."""
    full: int
    """As if no window were exploited."""


def resolve_dtype(arch: ModelArchitecture, dtype: str = "auto") -> str:
    """The type that weights are served in: bfloat16, float16 or float32."""
    return resolve_model_dtype(arch.dtype, dtype)


def resolve_kv_dtype(arch: ModelArchitecture, kv_dtype: str, dtype: str = "auto") -> str:
    """The KV type in use: one of float32, bf16, fp16, fp8, int8."""
    return resolve_kv_dtype_name(resolve_dtype(arch, dtype), kv_dtype)


def keeps_tokens(cache: Cache) -> bool:
    """Whether a cache grows with the sequence."""
    return isinstance(cache, AttentionCache | LatentCache)


def attention_layers(arch: ModelArchitecture) -> int:
    """Layers that keep keys and values (or a latent vector) of each token."""
    return sum(any(keeps_tokens(cache) for cache in layer.caches) for layer in arch.layers)


def kv_bytes_per_token(
    arch: ModelArchitecture, *, kv_dtype: str, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes per token on one device over all layers that keep keys and values, before any window is full.

    Llama-3.1-8B: 32 layers × 8 heads × (128 + 128) elements × 2 bytes = 131,072.
    """
    elements = elements_of(arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel)
    return sum(
        token_bytes(cache, elements) for layer in arch.layers for cache in layer.caches if keeps_tokens(cache)
    )


def state_bytes_per_sequence(
    arch: ModelArchitecture, *, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes per sequence on one device of all recurrent states, whatever the length."""
    elements = elements_of(arch, kv_dtype="auto", dtype=dtype, tensor_parallel=tensor_parallel)
    return sum(state_bytes(cache, elements) for layer in arch.layers for cache in layer.caches)


def cross_bytes_per_sequence(
    arch: ModelArchitecture, *, kv_dtype: str, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes per sequence on one device of the keys and values of another input."""
    elements = elements_of(arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel)
    return sum(
        token_bytes(cache, elements) * cache.num_tokens
        for layer in arch.layers
        for cache in layer.caches
        if isinstance(cache, CrossCache)
    )


def block_bytes(
    arch: ModelArchitecture, *, kv_dtype: str, block_size: int, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes of one block on one device, all layers of its group together."""
    return kv_layout(
        arch, kv_dtype=kv_dtype, block_size=block_size, dtype=dtype, tensor_parallel=tensor_parallel
    ).block_bytes


def kv_layout(
    arch: ModelArchitecture, *, kv_dtype: str, block_size: int, dtype: str = "auto", tensor_parallel: int = 1
) -> KVLayout:
    """The groups and blocks of the whole model on one device."""
    elements = elements_of(arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel)
    return build_layout(arch, elements, block_size=block_size)


def sequence_bytes(
    arch: ModelArchitecture,
    num_tokens: int,
    *,
    kv_dtype: str,
    block_size: int = 16,
    dtype: str = "auto",
    tensor_parallel: int = 1,
) -> SequenceBytes:
    """Keys and values of one sequence on one device; states and cross-attention are not in it."""
    elements = elements_of(arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel)
    layout = build_layout(arch, elements, block_size=block_size)
    growing = [kind for kind in layout.kinds if kind.name not in ("state", "cross")]
    ideal = full = 0
    for layer in arch.layers:
        for cache in layer.caches:
            if keeps_tokens(cache):
                each = token_bytes(cache, elements)
                full += each * num_tokens
                ideal += each * min(num_tokens, window_of(cache) or num_tokens)
    blocks = sum(blocks_of_kind(kind, num_tokens) for kind in growing)
    return SequenceBytes(windowed=blocks * layout.block_bytes, windowed_ideal=ideal, full=full)


def window_of(cache: Cache) -> int | None:
    return cache.window if isinstance(cache, AttentionCache) else None
