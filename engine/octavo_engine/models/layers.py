"""The parts of a decoder layer: weights with a call, nothing more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, silu

from octavo_engine.models.adaptation import Adaptation
from octavo_engine.models.decoder_config import Activation


@dataclass(frozen=True, slots=True)
class Linear:
    """Projection by a weight [out, in]."""

    weight: Tensor
    bias: Tensor | None = None
    adaptation: Adaptation | None = None
    """None: this engine takes no adapters, or not here."""

    def __call__(self, x: Tensor) -> Tensor:  # [T, in] -> [T, out]
        """Project each row."""
        out = linear(x, self.weight, self.bias)
        if self.adaptation is not None:
            self.adaptation.add_to(out, x)
        return out


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Root-mean-square norm over the last dimension, computed in float32."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize, then scale.

        The weight of the `1 + weight` kind is held in float32 with the one added, and so scales
        before the result is rounded; the plain kind scales the rounded result, as in the originals.
        """
        wide = x.to(torch.float32)
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (normed.to(self.weight.dtype) * self.weight).to(x.dtype)


@dataclass(frozen=True, slots=True)
class PlainNorm:
    """Root-mean-square norm without weights."""

    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize in float32."""
        wide = x.to(torch.float32)
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """`down(activation(gate(x)) * up(x))`, gate and up in one projection."""

    gate_up: Linear
    down: Linear
    activation: Activation

    def __call__(self, x: Tensor) -> Tensor:  # [T, E] -> [T, E]
        """Apply to each row."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        gate = silu(gate) if self.activation == "silu" else gelu(gate, approximate="tanh")
        return self.down(gate * up)
