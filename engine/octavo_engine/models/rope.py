"""Rotary position embedding: frequencies, and turning queries and keys by their positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.rope_config import RopeConfig, yarn_scale

Frequencies = tuple[Tensor, float]
"""Inverse frequencies [R / 2] in float32, and a factor on cosine and sine."""


class RotaryEmbedding:
    """Cosines and sines of one kind of layer, made for the positions of each step."""

    __slots__ = ("_factor", "inverse_frequencies", "rotary_dim")

    def __init__(self, config: RopeConfig, *, max_model_len: int, device: torch.device) -> None:
        frequencies, self._factor = FREQUENCIES[config.kind](config, max_model_len)
        self.inverse_frequencies = frequencies.to(device)
        self.rotary_dim = config.rotary_dim

    def cos_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # 2 x [T, 1, R]
        """Cosine and sine for each position, ready to multiply [T, H, R]."""
        angles = positions.to(torch.float32).unsqueeze(1) * self.inverse_frequencies  # [T, R / 2]
        angles = torch.cat((angles, angles), dim=1).unsqueeze(1)
        return (angles.cos() * self._factor).to(dtype), (angles.sin() * self._factor).to(dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the leading R dimensions of each head [T, H, D] by its position, halves paired."""
    rotary_dim = cos.shape[-1]
    turned, rest = heads[..., :rotary_dim], heads[..., rotary_dim:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), dim=-1)


def _plain(config: RopeConfig, stretch: float = 1.0) -> Tensor:
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.int64).to(torch.float32)
    return 1.0 / ((config.theta * stretch) ** (exponents / config.rotary_dim))


def _default(config: RopeConfig, _max_model_len: int) -> Frequencies:
    return _plain(config), 1.0


def _linear(config: RopeConfig, _max_model_len: int) -> Frequencies:
    return _plain(config) / config.number("factor"), 1.0


def _dynamic(config: RopeConfig, max_model_len: int) -> Frequencies:
    """Stretched for the longest context that is served, once that is beyond the model's own.

    The original stretches anew for each length that a text reaches; cached keys cannot be turned again.
    """
    excess = config.number("factor") * max(max_model_len / config.max_position_embeddings - 1, 0)
    return _plain(config, (1 + excess) ** (config.rotary_dim / (config.rotary_dim - 2))), 1.0


def _llama3(config: RopeConfig, _max_model_len: int) -> Frequencies:
    """Long wavelengths are stretched, short ones kept, those between blended."""
    plain, factor = _plain(config), config.number("factor")
    low, high = config.number("low_freq_factor"), config.number("high_freq_factor")
    original = config.number("original_max_position_embeddings")
    wavelengths = 2 * math.pi / plain
    share = (original / wavelengths - low) / (high - low)
    blended = (1 - share) * plain / factor + share * plain
    stretched = torch.where(wavelengths > original / low, plain / factor, plain)
    between = (wavelengths <= original / low) & (wavelengths >= original / high)
    return torch.where(between, blended, stretched), 1.0


def _yarn(config: RopeConfig, _max_model_len: int) -> Frequencies:
    """Interpolates slow dimensions, keeps fast ones, with a linear ramp between."""
    original = config.number("original_max_position_embeddings", config.max_position_embeddings)
    factor = config.number("factor", config.max_position_embeddings / original)
    fast = _yarn_dimension(config, config.number("beta_fast", 32), original)
    slow = _yarn_dimension(config, config.number("beta_slow", 1), original)
    if config.number("truncate", 1):
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, config.rotary_dim - 1)
    dims = torch.arange(config.rotary_dim // 2, dtype=torch.float32)
    ramp = ((dims - fast) / max(slow - fast, 0.001)).clamp(0, 1)
    plain = _plain(config)
    return plain / factor * ramp + plain * (1 - ramp), _yarn_attention_factor(config, factor)


def _yarn_dimension(config: RopeConfig, rotations: float, original: float) -> float:
    """Dimension that turns `rotations` times over the original context."""
    turns = math.log(original / (rotations * 2 * math.pi))
    return config.rotary_dim * turns / (2 * math.log(config.theta))


def _yarn_attention_factor(config: RopeConfig, factor: float) -> float:
    stated = dict(config.parameters).get("attention_factor")
    if isinstance(stated, int | float):
        return float(stated)
    scale, scale_all = config.number("mscale", 0), config.number("mscale_all_dim", 0)
    if scale and scale_all:
        return yarn_scale(factor, scale) / yarn_scale(factor, scale_all)
    return yarn_scale(factor, 1)


def _longrope(config: RopeConfig, max_model_len: int) -> Frequencies:
    """Per-dimension factors; the long ones once the context may exceed the original one."""
    original = config.number("original_max_position_embeddings", config.max_position_embeddings)
    name = "long_factor" if max_model_len > original else "short_factor"
    factors = dict(config.parameters).get(name)
    if not isinstance(factors, tuple) or len(factors) != config.rotary_dim // 2:
        raise UnsupportedModel(f"rope_scaling.{name}: must list {config.rotary_dim // 2} numbers")
    stretch = config.number("factor", config.max_position_embeddings / original)
    stated = dict(config.parameters).get("attention_factor")
    scale = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(original))
    return (
        _plain(config) / torch.tensor(factors, dtype=torch.float32),
        float(stated) if isinstance(stated, int | float) else scale,
    )


FREQUENCIES: Final[dict[str, Callable[[RopeConfig, int], Frequencies]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
