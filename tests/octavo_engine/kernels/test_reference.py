"""Paged attention against plain attention, with shuffled blocks and poison in every unused slot."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from octavo_engine.kernels.reference import build_attention_plan, paged_attention, write_rows
from octavo_engine.scheduling.batch_layout import GroupLayout, SpanLayout
from tests.octavo_engine.scheduling.paged_memory import first_attended

CPU = torch.device("cpu")


def plain_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    window: int | None,
    chunked: bool,
    softcap: float | None,
) -> Tensor:
    """[T, H, D] over all [C, K, D], written as the definition says; the queries are the last T."""
    num_new, num_heads, head_dim = query.shape
    repeats = num_heads // keys.shape[1]
    keys, values = keys.repeat_interleave(repeats, 1), values.repeat_interleave(repeats, 1)
    out = torch.zeros_like(query)
    for row in range(num_new):
        position = keys.shape[0] - num_new + row
        first = first_attended(position, window, chunked=chunked)
        for head in range(num_heads):
            scores = keys[first : position + 1, head] @ query[row, head] / math.sqrt(head_dim)
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            out[row, head] = torch.softmax(scores, 0) @ values[first : position + 1, head]
    return out


@settings(deadline=None, max_examples=60)
@given(
    spans=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), min_size=1, max_size=5),
    heads=st.sampled_from([(2, 2), (4, 2), (6, 1)]),
    block_size=st.integers(1, 5),
    window=st.sampled_from([None, 1, 4, 11]),
    chunked=st.booleans(),
    softcap=st.sampled_from([None, 3.0]),
    seed=st.integers(0, 1000),
)
def test_paged_attention_is_plain_attention(
    spans: list[tuple[int, int]],
    heads: tuple[int, int],
    block_size: int,
    window: int | None,
    chunked: bool,
    softcap: float | None,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_heads, num_kv_heads, head_dim = *heads, 8
    spans = sorted(spans, key=lambda span: span[0] > 1)
    num_rows = sum(new for new, _ in spans)
    needed = [-(-(new + past) // block_size) for new, past in spans]
    shuffled = (torch.randperm(sum(needed) + 3, generator=generator) + 1).tolist()
    shape = (sum(needed) + 4, block_size, num_kv_heads, head_dim)
    key_cache, value_cache = torch.full(shape, math.nan), torch.full(shape, math.inf)

    query = torch.randn(num_rows, num_heads, head_dim, generator=generator)
    new_keys = torch.randn(num_rows, num_kv_heads, head_dim, generator=generator)
    new_values = torch.randn(num_rows, num_kv_heads, head_dim, generator=generator)
    layouts: list[SpanLayout] = []
    slots: list[int] = []
    expected: list[Tensor] = []
    start = 0
    for (new, past), count in zip(spans, needed, strict=True):
        table = [shuffled.pop() for _ in range(count)]
        positions = [table[p // block_size] * block_size + p % block_size for p in range(past + new)]
        past_keys = torch.randn(past, num_kv_heads, head_dim, generator=generator)
        past_values = torch.randn(past, num_kv_heads, head_dim, generator=generator)
        key_cache.view(-1, num_kv_heads, head_dim)[positions[:past]] = past_keys
        value_cache.view(-1, num_kv_heads, head_dim)[positions[:past]] = past_values
        skipped = first_attended(past, window, chunked=chunked) // block_size
        layouts.append(
            SpanLayout(
                start=start,
                num_new_tokens=new,
                context_len=past + new - skipped * block_size,
                first_position=skipped * block_size,
                block_ids=tuple(table[skipped:]),
            )
        )
        slots += positions[past:]
        rows = slice(start, start + new)
        expected.append(
            plain_attention(
                query[rows],
                torch.cat((past_keys, new_keys[rows])),
                torch.cat((past_values, new_values[rows])),
                window=window,
                chunked=chunked,
                softcap=softcap,
            )
        )
        start += new

    plan = build_attention_plan(
        GroupLayout(window=window, chunked=chunked, slot_mapping=slots, spans=tuple(layouts)),
        num_decodes=sum(new == 1 for new, _ in spans),
        block_size=block_size,
        dtype=torch.float32,
        device=CPU,
    )
    write_rows(plan, new_keys, key_cache)
    write_rows(plan, new_values, value_cache)
    out = paged_attention(plan, query, key_cache, value_cache, scale=head_dim**-0.5, softcap=softcap)
    torch.testing.assert_close(out, torch.cat(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_keys_and_values_are_rounded_to_the_type_of_the_cache(dtype: torch.dtype) -> None:
    plan = build_attention_plan(
        GroupLayout(
            window=None,
            slot_mapping=[2, 3],
            spans=(SpanLayout(start=0, num_new_tokens=2, context_len=2, first_position=0, block_ids=(1,)),),
        ),
        num_decodes=0,
        block_size=2,
        dtype=torch.float32,
        device=CPU,
    )
    query, key, value = (torch.randn(2, 1, 4) for _ in range(3))
    key_cache, value_cache = torch.zeros(2, 2, 1, 4, dtype=dtype), torch.zeros(2, 2, 1, 4, dtype=dtype)
    write_rows(plan, key, key_cache)
    write_rows(plan, value, value_cache)
    out = paged_attention(plan, query, key_cache, value_cache, scale=0.5)
    torch.testing.assert_close(out[0], value[0].to(dtype).to(torch.float32))
