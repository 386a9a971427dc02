"""Attention with keys and values: heads, biases, norms of queries and keys, gates and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.config_fields import ConfigFields
from octavo.families.parts import Part, Switch, is_on, linear, vector
from octavo.families.windows import FULL, Reach
from octavo.layers import AttentionCache, Weight
from octavo.model_shape import Dimensions

QueryKeyNorm = Literal["none", "head", "head_biased", "each_head", "full", "full_heads"]
"""`head`: one vector of the head width for queries, one for keys. `each_head`: one per head.
`full`: as wide as all heads. `full_heads`: queries and keys both as wide as all query heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTraits:
    """How a family's attention departs from Llama's."""

    qkv_bias: Switch = "attention_bias"
    output_bias: Switch = "attention_bias"
    qk_norm: QueryKeyNorm = "none"
    qk_norm_switch: Switch = True
    gate: Literal["none", "in_query", "per_head", "per_head_switched", "full"] = "none"
    sinks: bool = False


LLAMA_ATTENTION = AttentionTraits()


def attention(
    fields: ConfigFields,
    dims: Dimensions,
    traits: AttentionTraits = LLAMA_ATTENTION,
    *,
    reach: Reach = FULL,
    shares_cache: bool = False,
    value_dim: int | None = None,
) -> Part:
    """Query, key, value and output maps with their cache; `shares_cache` reads an earlier layer's."""
    value_dim = value_dim or dims.head_dim
    query_width = dims.heads * dims.head_dim
    bias = is_on(fields, traits.qkv_bias)
    query_outputs = query_width * (2 if traits.gate == "in_query" else 1)
    weights = linear("self_attn.q_proj", query_outputs, dims.hidden, bias=bias)
    if not shares_cache:
        key_width, value_width = dims.kv_heads * dims.head_dim, dims.kv_heads * value_dim
        weights += linear("self_attn.k_proj", key_width, dims.hidden, bias=bias, pieces=dims.kv_heads)
        weights += linear("self_attn.v_proj", value_width, dims.hidden, bias=bias, pieces=dims.kv_heads)
    weights += linear(
        "self_attn.o_proj", dims.hidden, dims.heads * value_dim, bias=is_on(fields, traits.output_bias)
    )
    weights += _extras(fields, dims, traits, shares_cache)
    cache = AttentionCache(
        num_kv_heads=dims.kv_heads,
        key_dim=dims.head_dim,
        value_dim=value_dim,
        window=reach.window,
        chunked=reach.chunked,
    )
    return Part(weights=tuple(weights), caches=() if shares_cache else (cache,), width=3 * query_width)


def _extras(
    fields: ConfigFields, dims: Dimensions, traits: AttentionTraits, shares_cache: bool
) -> list[Weight]:
    weights = []
    if traits.qk_norm != "none" and is_on(fields, traits.qk_norm_switch):
        weights.append(vector("self_attn.qk_norm", _norm_width(dims, traits.qk_norm, shares_cache)))
    if traits.gate.startswith("per_head"):
        weights += linear("self_attn.g_proj", dims.heads, dims.hidden)
    if traits.gate == "full":
        weights += linear("self_attn.gate_proj", dims.heads * dims.head_dim, dims.hidden)
    if traits.sinks:
        weights.append(vector("self_attn.sinks", dims.heads))
    return weights


def _norm_width(dims: Dimensions, norm: QueryKeyNorm, shares_cache: bool) -> int:
    kv_heads = 0 if shares_cache else dims.kv_heads
    width = {
        "head": dims.head_dim * (1 if shares_cache else 2),
        "head_biased": 4 * dims.head_dim,
        "each_head": (dims.heads + kv_heads) * dims.head_dim,
        "full": (dims.heads + kv_heads) * dims.head_dim,
        "full_heads": 2 * dims.heads * dims.head_dim,
    }
    return width[norm]
