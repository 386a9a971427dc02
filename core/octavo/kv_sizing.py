"""Bytes and blocks of a KV cache, from a model's numbers alone.

Terms: a *block* holds the keys and values of `block_size` consecutive tokens of one sequence, for
every layer of one KV-cache group.
Source: PagedAttention, arXiv 2309.06180, section 4.
"""

from __future__ import annotations

from octavo.architecture import ModelArchitecture
from octavo.dtypes import KV_DTYPE_BYTES, resolve_kv_dtype_name, resolve_model_dtype
from octavo.layers import AttentionCache, Cache, LatentCache
from octavo.units import ceil_div


def resolve_kv_dtype(arch: ModelArchitecture, kv_dtype: str, dtype: str = "auto") -> str:
    """The KV type in use: one of float32, bf16, fp16, fp8, int8."""
    return resolve_kv_dtype_name(resolve_model_dtype(arch.dtype, dtype), kv_dtype)


def cache_bytes_per_token(cache: Cache, *, element_bytes: int, tensor_parallel: int) -> int:
    """What one layer's cache takes for one token on one device.

    A KV head is never cut: with more devices than heads, several hold the same head. A latent vector
    belongs to all heads, so that every device holds it.

    >>> heads8 = AttentionCache(num_kv_heads=8, key_dim=128, value_dim=128)
    >>> cache_bytes_per_token(heads8, element_bytes=2, tensor_parallel=1)
    4096
    """
    if isinstance(cache, AttentionCache):
        heads = ceil_div(cache.num_kv_heads, tensor_parallel)
        return heads * (cache.key_dim + cache.value_dim) * element_bytes
    if isinstance(cache, LatentCache):
        return (cache.latent_dim + cache.rope_dim) * element_bytes + cache.indexer_bytes
    return 0


def kv_bytes_per_token(
    arch: ModelArchitecture, *, kv_dtype: str, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes per token on one device over all layers that keep keys and values, before any window is full."""
    element_bytes = KV_DTYPE_BYTES[resolve_kv_dtype(arch, kv_dtype, dtype)]
    return sum(
        cache_bytes_per_token(cache, element_bytes=element_bytes, tensor_parallel=tensor_parallel)
        for layer in arch.layers
        for cache in layer.caches
    )


def block_bytes(
    arch: ModelArchitecture, *, kv_dtype: str, block_size: int, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes of one block on one device, all layers of its group together."""
    return block_size * kv_bytes_per_token(
        arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel
    )


def blocks_per_sequence(num_tokens: int, *, block_size: int) -> int:
    """Blocks that a sequence of so many tokens holds.

    >>> blocks_per_sequence(17, block_size=16)
    2
    """
    return ceil_div(num_tokens, block_size)
