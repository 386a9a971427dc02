"""Layers that share a block table, and the blocks that all groups take from one pool.

Terms: layers are of one *kind* if they need the same tokens (all; the last `window`; one chunk; another
input; a state). A *group* is some layers of one kind that share a block table. A *page* is what one
layer stores for one block. All blocks of the pool are equal, so every group has the same number of
layers and every layer the same page: a kind whose layers do not fill its last group pads it, and a
kind whose tokens are smaller puts more of them into a block.

A state must fit into one page. Where it does not, blocks get more tokens until an attention page holds
it: Qwen3.5-27B in bfloat16 needs 784 tokens in a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from octavo.architecture import ModelArchitecture
from octavo.dtypes import KV_DTYPE_BYTES, MODEL_DTYPE_BYTES, resolve_kv_dtype_name, resolve_model_dtype
from octavo.layers import AttentionCache, Cache, CrossCache, LatentCache, StateCache
from octavo.units import ceil_div, round_up

KindName = Literal["full", "sliding", "chunked", "latent", "cross", "state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind:
    """All layers that need the same tokens of a sequence, cut into equal groups."""

    name: KindName
    num_layers: int
    num_groups: int
    padding_layers: int
    """Places in the last group that no layer fills."""
    block_tokens: int
    """Tokens in a block; for a state 0."""
    page_padding_bytes: int
    """Of one layer's page, left empty because pages are equal."""
    window: int | None = None
    fixed_tokens: int = 0
    """Of another input (cross-attention), the same for every sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """How one device's pool is cut."""

    kinds: tuple[GroupKind, ...]
    block_size: int
    """Tokens in a block of the kind with the most bytes per token."""
    block_bytes: int
    layers_per_group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Bytes of the types in use, and over how many devices heads are spread."""

    kv_bytes: int
    served_bytes: int
    tensor_parallel: int


def elements_of(
    arch: ModelArchitecture, *, kv_dtype: str, dtype: str = "auto", tensor_parallel: int = 1
) -> Elements:
    served = resolve_model_dtype(arch.dtype, dtype)
    return Elements(
        kv_bytes=KV_DTYPE_BYTES[resolve_kv_dtype_name(served, kv_dtype)],
        served_bytes=MODEL_DTYPE_BYTES[served],
        tensor_parallel=tensor_parallel,
    )


def token_bytes(cache: Cache, elements: Elements) -> int:
    """What one layer stores for one token on one device; 0 for a state.

    A KV head is never cut: with more devices than heads, several hold the same head. A latent vector
    belongs to all heads, so that every device holds it.
    """
    match cache:
        case AttentionCache():
            heads = ceil_div(cache.num_kv_heads, elements.tensor_parallel)
            return heads * (cache.key_dim + cache.value_dim) * elements.kv_bytes
        case CrossCache():
            return (
                ceil_div(cache.num_kv_heads, elements.tensor_parallel)
                * 2
                * cache.head_dim
                * elements.kv_bytes
            )
        case LatentCache():
            return (cache.latent_dim + cache.rope_dim) * elements.kv_bytes + cache.indexer_bytes
        case StateCache():
            return 0


def state_bytes(cache: Cache, elements: Elements) -> int:
    """What one layer stores for one sequence, whatever its length; 0 for all but a state."""
    if not isinstance(cache, StateCache):
        return 0
    return sum(
        ceil_div(tensor.elements, elements.tensor_parallel)
        * (tensor.bytes_per_element or elements.served_bytes)
        for tensor in cache.tensors
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    name: KindName
    window: int | None
    fixed_tokens: int


def _kind_of(cache: Cache) -> _Kind:
    match cache:
        case AttentionCache(window=None):
            return _Kind("full", None, 0)
        case AttentionCache():
            return _Kind("chunked" if cache.chunked else "sliding", cache.window, 0)
        case LatentCache():
            return _Kind("latent", None, 0)
        case CrossCache():
            return _Kind("cross", None, cache.num_tokens)
        case StateCache():
            return _Kind("state", None, 0)


def build_layout(
    arch: ModelArchitecture, elements: Elements, *, block_size: int, layers: range | None = None
) -> KVLayout:
    """Cut the caches of some layers (a pipeline stage; default all) into groups over one pool."""
    chosen = arch.layers if layers is None else arch.layers[layers.start : layers.stop]
    by_kind: dict[_Kind, list[Cache]] = {}
    for layer in chosen:
        for cache in layer.caches:
            by_kind.setdefault(_kind_of(cache), []).append(cache)
    if not by_kind:
        return KVLayout(kinds=(), block_size=block_size, block_bytes=0, layers_per_group=0)
    if len(by_kind) == 1:
        return _one_group(*by_kind.popitem(), elements, block_size)
    return _equal_groups(by_kind, elements, block_size)


def _one_group(kind: _Kind, caches: Sequence[Cache], elements: Elements, block_size: int) -> KVLayout:
    """All layers alike: one table for all, and pages may differ from layer to layer."""
    per_token = sum(token_bytes(cache, elements) for cache in caches)
    total = per_token * block_size + sum(state_bytes(cache, elements) for cache in caches)
    group = GroupKind(
        name=kind.name,
        num_layers=len(caches),
        num_groups=1,
        padding_layers=0,
        block_tokens=block_size if per_token else 0,
        page_padding_bytes=0,
        window=kind.window,
        fixed_tokens=kind.fixed_tokens,
    )
    return KVLayout(kinds=(group,), block_size=block_size, block_bytes=total, layers_per_group=len(caches))


def _equal_groups(by_kind: dict[_Kind, list[Cache]], elements: Elements, block_size: int) -> KVLayout:
    widest = {kind: max(token_bytes(cache, elements) for cache in caches) for kind, caches in by_kind.items()}
    largest_state = max(state_bytes(cache, elements) for caches in by_kind.values() for cache in caches)
    tokens, page = _page(max(widest.values()), largest_state, block_size)
    size = min(len(caches) for caches in by_kind.values())
    kinds = tuple(
        _group_kind(kind, len(caches), size, widest[kind], largest_state, page, block_size)
        for kind, caches in by_kind.items()
    )
    return KVLayout(kinds=kinds, block_size=tokens, block_bytes=size * page, layers_per_group=size)


def _page(bytes_per_token: int, largest_state: int, block_size: int) -> tuple[int, int]:
    """Tokens of a block and bytes of a page: as asked, or as many as a state needs."""
    if not bytes_per_token:
        return block_size, largest_state
    tokens = max(block_size, round_up(ceil_div(largest_state, bytes_per_token), block_size))
    return tokens, tokens * bytes_per_token


def _group_kind(
    kind: _Kind, count: int, size: int, bytes_per_token: int, state: int, page: int, block_size: int
) -> GroupKind:
    groups = ceil_div(count, size)
    tokens = page // bytes_per_token // block_size * block_size if bytes_per_token else 0
    used = tokens * bytes_per_token if bytes_per_token else state
    return GroupKind(
        name=kind.name,
        num_layers=count,
        num_groups=groups,
        padding_layers=groups * size - count,
        block_tokens=tokens,
        page_padding_bytes=page - used,
        window=kind.window,
        fixed_tokens=kind.fixed_tokens,
    )


def blocks_of_kind(kind: GroupKind, num_tokens: int) -> int:
    """Blocks that a sequence of so many tokens holds at most, between two steps.

    A window of 1024 tokens in blocks of 16 can lie across 65 of them.
    """
    if kind.name == "state":
        return kind.num_groups
    if kind.name == "cross":
        return kind.num_groups * ceil_div(kind.fixed_tokens, kind.block_tokens)
    whole = ceil_div(num_tokens, kind.block_tokens)
    if kind.window is None:
        return kind.num_groups * whole
    if kind.name == "chunked":  # a chunk starts at a multiple of its own length
        straddles = kind.window % kind.block_tokens != 0
        return kind.num_groups * min(whole, ceil_div(kind.window, kind.block_tokens) + straddles)
    return kind.num_groups * min(whole, ceil_div(kind.window - 1, kind.block_tokens) + 1)


def prefill_blocks_of_kind(kind: GroupKind, num_tokens: int, chunk: int) -> int:
    """Blocks beyond `blocks_of_kind` while a chunk of a prompt is computed: its tokens and the window."""
    if kind.window is None or kind.name in ("state", "cross"):
        return 0
    whole = kind.num_groups * ceil_div(num_tokens, kind.block_tokens)
    held = blocks_of_kind(kind, num_tokens)
    return min(whole - held, kind.num_groups * ceil_div(chunk, kind.block_tokens))


def blocks_per_sequence(layout: KVLayout, num_tokens: int) -> int:
    """Blocks of all groups that a sequence of so many tokens holds at most."""
    return sum(blocks_of_kind(kind, num_tokens) for kind in layout.kinds)


def prefill_blocks(layout: KVLayout, num_tokens: int, chunk: int) -> int:
    """Further blocks that one prompt needs while it is computed in chunks."""
    return sum(prefill_blocks_of_kind(kind, num_tokens, chunk) for kind in layout.kinds)


def without_windows(layout: KVLayout) -> KVLayout:
    """The same groups, as an engine would fill them that exploits no window."""
    kinds = tuple(replace(kind, name="full", window=None) if kind.window else kind for kind in layout.kinds)
    return replace(layout, kinds=kinds)


def named_padding(layout: KVLayout) -> tuple[str, ...]:
    """Every way in which equal blocks waste memory, in words."""
    notes = []
    for kind in layout.kinds:
        if kind.padding_layers:
            notes.append(
                f"{kind.num_layers} {kind.name} layers fill {kind.num_groups} groups of "
                f"{layout.layers_per_group} with {kind.padding_layers} to spare."
            )
        if kind.page_padding_bytes:
            notes.append(f"Each page of a {kind.name} layer leaves {kind.page_padding_bytes} bytes empty.")
    return tuple(notes)
