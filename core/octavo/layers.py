"""What one layer of a model keeps in memory: its weights, and its share of the KV cache or state.

Terms: a *cache* is what a layer stores for a sequence. Attention stores keys and values for each
token; latent attention (MLA) one compressed vector for each token; a state layer a constant amount
for each sequence; cross-attention keys and values of another input, once for each sequence.
A *weight* is one matrix (or a stack of equal ones), described well enough to quantize and to split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WeightRole = Literal["linear", "expert", "embedding", "head", "router", "tower", "vector"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One matrix of `outputs × inputs`, or `copies` equal ones; a vector has one input."""

    path: str
    """As in the checkpoint below its layer (`self_attn.q_proj`): exclusion lists match on it."""
    outputs: int
    inputs: int = 1
    copies: int = 1
    role: WeightRole = "linear"
    pieces: int | None = None
    """Into how many parts tensor parallelism can cut it: None any number, 1 every device has all."""

    @property
    def num_parameters(self) -> int:
        return self.outputs * self.inputs * self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCache:
    """Keys and values of every token, or of the last `window` tokens only."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    """Tokens that a query can see back, itself included; None sees all."""
    chunked: bool = False
    """True: the window is an aligned chunk (Llama 4), not a sliding one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCache:
    """One compressed vector per token, the same on every device of a tensor-parallel group."""

    latent_dim: int
    rope_dim: int
    indexer_bytes: int = 0
    """Per token, whatever the KV type: the sparse indexer's key in FP8 and its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One constant tensor per sequence."""

    name: str
    elements: int
    bytes_per_element: int | None = None
    """None: as the served weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCache:
    """What a recurrent layer carries from token to token."""

    tensors: tuple[StateTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCache:
    """Keys and values of another input (audio frames, image tiles), once per sequence."""

    num_kv_heads: int
    head_dim: int
    num_tokens: int


Cache = AttentionCache | LatentCache | StateCache | CrossCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer. No cache at all: it computes only, or reads an earlier layer's."""

    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]
