"""Paged attention in pure torch: runs everywhere, and is what other kernels are tested against.

Letters in shapes: B sequences, T tokens in the step, H query heads, K KV heads, G = H / K query heads
per KV head, D head dim, N blocks, S block size, M blocks per sequence, C context length.

Slots that no token of the sequence was written to may hold anything, also infinities of another
sequence: they are zeroed after the gather, since a weight of zero does not make a NaN disappear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from octavo_engine.scheduling.batch_layout import GroupLayout, SpanLayout

NAME: Final = "torch-reference"
REASON: Final = "this version has no compiled kernels"
"""Why an engine computes by these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherPlan:
    """What to read from the cache for one call of attention: shared by all layers of a group."""

    rows: slice
    """Of the step's tokens."""
    block_ids: Tensor  # [B * M] int64
    context_len: int  # C: the longest of the B
    unwritten: Tensor | None  # flat indices into [B, M * S] that no token was written to
    bias: Tensor | None  # [B, 1, 1, C] or [1, 1, T, C], 0 or -inf, in the query's dtype
    is_causal: bool
    """Whether the mask is just the lower triangle, so that no bias is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPlan:
    """One group's index tensors and masks for a step, made once and used by each of its layers."""

    slot_mapping: Tensor  # [T] int64
    decode: GatherPlan | None
    prefills: tuple[GatherPlan, ...]


def build_attention_plan(
    layout: GroupLayout, *, num_decodes: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> AttentionPlan:
    """Turn a layout's lists into tensors."""
    decodes, prefills = layout.spans[:num_decodes], layout.spans[num_decodes:]
    return AttentionPlan(
        slot_mapping=torch.tensor(layout.slot_mapping, dtype=torch.int64, device=device),
        decode=_plan_decodes(decodes, layout, block_size, dtype, device) if decodes else None,
        prefills=tuple(_plan_prefill(span, layout, dtype, device) for span in prefills),
    )


def _plan_decodes(
    spans: tuple[SpanLayout, ...],
    layout: GroupLayout,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> GatherPlan:
    """All generating sequences as one padded batch."""
    width = max(len(span.block_ids) for span in spans)
    tables = [[*span.block_ids, *([0] * (width - len(span.block_ids)))] for span in spans]
    longest = max(span.context_len for span in spans)
    lens = torch.tensor([span.context_len for span in spans], device=device).unsqueeze(1)  # [B, 1]
    index = torch.arange(width * block_size, device=device)  # [M * S]
    written = index < lens  # [B, M * S]
    starts = torch.tensor([span.first_position for span in spans], device=device).unsqueeze(1)
    seen = _seen(index + starts, lens - 1 + starts, layout)
    visible = (written if seen is None else written & seen)[:, :longest]
    return GatherPlan(
        rows=slice(0, len(spans)),
        block_ids=torch.tensor(tables, dtype=torch.int64, device=device).flatten(),
        context_len=longest,
        unwritten=_indices_of(~written),
        bias=_bias(visible, dtype)[:, None, None, :] if not bool(visible.all()) else None,
        is_causal=False,
    )


def _plan_prefill(
    span: SpanLayout, layout: GroupLayout, dtype: torch.dtype, device: torch.device
) -> GatherPlan:
    """One sequence's chunk: query row i stands at context index `context_len - num_new_tokens + i`."""
    is_causal = layout.window is None and span.context_len == span.num_new_tokens
    bias = None
    if not is_causal:
        keys = torch.arange(span.context_len, device=device) + span.first_position  # [C]
        queries = keys[span.context_len - span.num_new_tokens :].unsqueeze(1)  # [T, 1]
        seen = _seen(keys, queries, layout)
        visible = keys <= queries if seen is None else (keys <= queries) & seen
        bias = _bias(visible, dtype)[None, None]
    return GatherPlan(
        rows=slice(span.start, span.start + span.num_new_tokens),
        block_ids=torch.tensor(span.block_ids, dtype=torch.int64, device=device),
        context_len=span.context_len,
        unwritten=None,
        bias=bias,
        is_causal=is_causal,
    )


def _seen(keys: Tensor, queries: Tensor, layout: GroupLayout) -> Tensor | None:
    """Which positions lie not before the window of which query's position; None: all."""
    if layout.window is None:
        return None
    if layout.chunked:
        return keys >= queries - queries % layout.window
    return keys > queries - layout.window


def _indices_of(mask: Tensor) -> Tensor | None:
    indices = mask.flatten().nonzero().flatten()
    return indices if indices.numel() else None


def _bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)


def write_rows(plan: AttentionPlan, rows: Tensor, cache: Tensor) -> None:  # [T, K, D], [N, S, K, D]
    """Put the step's keys (or values) into their slots."""
    cache.view(-1, *rows.shape[1:]).index_copy_(0, plan.slot_mapping, rows.to(cache.dtype))


def paged_attention(
    plan: AttentionPlan,
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,  # [N, S, K, D]
    value_cache: Tensor,  # [N, S, K, D]
    *,
    scale: float,
    softcap: float | None = None,
) -> Tensor:  # [T, H, D]
    """Attend from each of the step's tokens to its sequence's cached ones (its own included).

    `value_cache` may be `key_cache` itself: latent attention keeps one vector for both.
    """
    output = torch.empty_like(query)
    if plan.decode is not None:
        gather = plan.decode
        output[gather.rows] = _attend_decodes(
            gather, query[gather.rows], key_cache, value_cache, scale=scale, softcap=softcap
        )
    for gather in plan.prefills:
        output[gather.rows] = _attend_prefill(
            gather, query[gather.rows], key_cache, value_cache, scale=scale, softcap=softcap
        )
    return output


def _attend_decodes(
    gather: GatherPlan,
    query: Tensor,  # [B, H, D]
    key_cache: Tensor,
    value_cache: Tensor,
    *,
    scale: float,
    softcap: float | None,
) -> Tensor:  # [B, H, D]
    """The G query heads of one KV head stand where query positions would: keys are never repeated."""
    num_seqs, num_heads, head_dim = query.shape
    keys, values = _gather_both(gather, key_cache, value_cache, num_seqs, query.dtype)  # [B, K, C, D]
    num_kv_heads = keys.shape[1]
    packed = query.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    attended = _attend(packed, keys, values, gather, scale=scale, softcap=softcap)
    return attended.reshape(num_seqs, num_heads, head_dim)


def _attend_prefill(
    gather: GatherPlan,
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,
    value_cache: Tensor,
    *,
    scale: float,
    softcap: float | None,
) -> Tensor:  # [T, H, D]
    """The G query heads of one KV head stand where a batch would, over the same keys."""
    num_tokens, num_heads, head_dim = query.shape
    keys, values = _gather_both(gather, key_cache, value_cache, 1, query.dtype)  # [1, K, C, D]
    num_kv_heads = keys.shape[1]
    per_kv_head = num_heads // num_kv_heads
    packed = query.view(num_tokens, num_kv_heads, per_kv_head, head_dim).permute(2, 1, 0, 3)  # [G, K, T, D]
    keys, values = keys.expand(per_kv_head, -1, -1, -1), values.expand(per_kv_head, -1, -1, -1)
    attended = _attend(packed, keys, values, gather, scale=scale, softcap=softcap)
    return attended.permute(2, 1, 0, 3).reshape(num_tokens, num_heads, head_dim)


def _gather_both(
    gather: GatherPlan, key_cache: Tensor, value_cache: Tensor, num_seqs: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:  # 2 x [B, K, C, D]
    keys = _gather(gather, key_cache, num_seqs).to(dtype).transpose(1, 2)
    if value_cache is key_cache:
        return keys, keys
    return keys, _gather(gather, value_cache, num_seqs).to(dtype).transpose(1, 2)


def _gather(gather: GatherPlan, cache: Tensor, num_seqs: int) -> Tensor:  # [B, C, K, D]
    _, _, num_kv_heads, head_dim = cache.shape
    blocks = cache.index_select(0, gather.block_ids)  # [B * M, S, K, D]
    if gather.unwritten is not None:
        blocks.view(-1, num_kv_heads, head_dim).index_fill_(0, gather.unwritten, 0)
    return blocks.view(num_seqs, -1, num_kv_heads, head_dim)[:, : gather.context_len]


def _attend(
    query: Tensor,  # [B, K, Q, D]
    keys: Tensor,  # [B, K, C, D]
    values: Tensor,  # [B, K, C, D]
    gather: GatherPlan,
    *,
    scale: float,
    softcap: float | None,
) -> Tensor:  # [B, K, Q, D]
    if softcap is None:
        return scaled_dot_product_attention(
            query, keys, values, attn_mask=gather.bias, is_causal=gather.is_causal, scale=scale
        )
    scores = softcap * torch.tanh(query @ keys.transpose(-1, -2) * (scale / softcap))
    if gather.bias is not None:
        scores = scores + gather.bias
    elif gather.is_causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, device=scores.device).triu(1)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ values
