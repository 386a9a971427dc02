"""The transient memory of one engine step, beside weights and KV cache.

A step holds, at its widest point, the intermediate of one MLP and a few copies of the hidden state for
every batched token, and the logits of every sequence that samples. So the peak depends on
`max_num_batched_tokens` and `max_num_seqs`, hardly on the depth, and not on tensor parallelism (vLLM
0.6.5 measured 1.26 GiB for Llama-3-8B with 8192 tokens on one H100 and on each of two).
"""

from __future__ import annotations

from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.dtypes import KV_DTYPE_BYTES, MODEL_DTYPE_BYTES
from octavo.layers import AttentionCache

HIDDEN_COPIES: Final = 4
"""Residual, norm, and the input and output of the part that runs."""
SAMPLER_BYTES_ACCELERATOR: Final = 12
"""Per logit: the logits, the probabilities and a scratch copy, each in float32."""
SAMPLER_BYTES_CPU: Final = 6
"""Per logit: as the model made it (2) and in float32 (4)."""


def activation_bytes(
    arch: ModelArchitecture,
    *,
    dtype: str,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    sampler_bytes: int = SAMPLER_BYTES_ACCELERATOR,
) -> int:
    """Peak bytes of one step on one device."""
    per_token = (HIDDEN_COPIES * arch.hidden_size + arch.widest_activation) * MODEL_DTYPE_BYTES[dtype]
    rows = min(max_num_seqs, max_num_batched_tokens)
    return max_num_batched_tokens * per_token + rows * arch.vocab_size * sampler_bytes


def gathered_attention_bytes(
    arch: ModelArchitecture, *, dtype: str, kv_dtype: str, context: int, max_num_batched_tokens: int
) -> int:
    """What attention without a fused kernel takes for a chunk at the end of a long context.

    One layer's keys and values are gathered once in the cache's type and once in the model's, and the
    mask holds one number for each pair of new and cached token.
    """
    caches = [cache for layer in arch.layers for cache in layer.caches if isinstance(cache, AttentionCache)]
    widest = max((cache.num_kv_heads * (cache.key_dim + cache.value_dim) for cache in caches), default=0)
    element_bytes = MODEL_DTYPE_BYTES[dtype]
    gathered = context * widest * (KV_DTYPE_BYTES[kv_dtype] + element_bytes)
    return gathered + (context * max_num_batched_tokens * (element_bytes + 1) if caches else 0)
