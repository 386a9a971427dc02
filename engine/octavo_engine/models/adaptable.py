"""Makes a loaded decoder's projections adaptable, and knows them by the names that checkpoints use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from octavo_engine.models.adaptation import Adaptation, LowRank, StepRows
from octavo_engine.models.attention import GroupedQueryAttention
from octavo_engine.models.decoder import Decoder, DecoderLayer
from octavo_engine.models.family import FamilySwitches
from octavo_engine.models.layers import GatedMLP, Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One stored projection inside of a decoder's."""

    adaptation: Adaptation
    columns: slice
    in_size: int
    out_size: int

    def add(self, adapter: str, part: LowRank) -> None:
        """From now on rows of this adapter get this part."""
        self.adaptation.parts.setdefault(adapter, []).append((self.columns, part))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptableDecoder:
    """A decoder with the places where adapters can come in."""

    decoder: Decoder
    rows: StepRows
    sites: Mapping[str, Site]
    """By module name, as `model.layers.0.self_attn.q_proj`."""

    @property
    def dtype(self) -> torch.dtype:
        return self.decoder.embeddings.dtype

    @property
    def device(self) -> torch.device:
        return self.decoder.embeddings.device

    def most_bytes(self, rank: int) -> int:
        """Of one adapter of this rank on every site."""
        return sum(rank * (site.in_size + site.out_size) for site in self.sites.values()) * (
            self.dtype.itemsize
        )

    def remove(self, adapter: str) -> None:
        """Forget all parts of an adapter."""
        for site in self.sites.values():
            site.adaptation.parts.pop(adapter, None)


Adapt = Callable[[Linear, str, list[tuple[str, int]]], Linear]
"""A projection, the prefix of its parts' names, their names and sizes -> the same, adaptable."""


def make_adaptable(decoder: Decoder) -> AdaptableDecoder:
    """The same decoder; attention and dense MLPs can be adapted.

    Experts and latent attention cannot, nor attention whose rows were reordered when they were loaded.
    """
    rows, sites = StepRows(), dict[str, Site]()

    def adapt(linear: Linear, prefix: str, parts: list[tuple[str, int]]) -> Linear:
        adaptation = Adaptation(rows=rows)
        for name, columns in _columns(parts):
            sites[prefix + name] = Site(
                adaptation=adaptation,
                columns=columns,
                in_size=linear.weight.shape[1],
                out_size=columns.stop - columns.start,
            )
        return replace(linear, adaptation=adaptation)

    layers = tuple(
        _adaptable_layer(layer, f"model.layers.{index}.", adapt, decoder.config.family)
        for index, layer in enumerate(decoder.layers)
    )
    return AdaptableDecoder(decoder=replace(decoder, layers=layers), rows=rows, sites=sites)


def _columns(parts: list[tuple[str, int]]) -> Iterator[tuple[str, slice]]:
    start = 0
    for name, size in parts:
        yield name, slice(start, start + size)
        start += size


def _adaptable_layer(layer: DecoderLayer, prefix: str, adapt: Adapt, family: FamilySwitches) -> DecoderLayer:
    attention, mlp, fused = layer.attention, layer.mlp, family.fused_projections
    if isinstance(attention, GroupedQueryAttention) and not family.neighbours_paired:
        attention = _adaptable_attention(attention, prefix + "self_attn.", adapt, fused=fused)
    if isinstance(mlp, GatedMLP):
        mlp = _adaptable_mlp(mlp, f"{prefix}{family.mlp_module}.", adapt, fused=fused)
    return replace(layer, attention=attention, mlp=mlp)


def _adaptable_attention(
    attention: GroupedQueryAttention, prefix: str, adapt: Adapt, *, fused: bool
) -> GroupedQueryAttention:
    query, kv = (heads * attention.head_dim for heads in (attention.num_heads, attention.num_kv_heads))
    parts = [("qkv_proj", query + 2 * kv)] if fused else [("q_proj", query), ("k_proj", kv), ("v_proj", kv)]
    return replace(
        attention,
        qkv=adapt(attention.qkv, prefix, parts),
        output=adapt(attention.output, prefix, [("o_proj", attention.output.weight.shape[0])]),
    )


def _adaptable_mlp(mlp: GatedMLP, prefix: str, adapt: Adapt, *, fused: bool) -> GatedMLP:
    inner = mlp.down.weight.shape[1]
    parts = [("gate_up_proj", 2 * inner)] if fused else [("gate_proj", inner), ("up_proj", inner)]
    return replace(
        mlp,
        gate_up=adapt(mlp.gate_up, prefix, parts),
        down=adapt(mlp.down, prefix, [("down_proj", mlp.down.weight.shape[0])]),
    )
