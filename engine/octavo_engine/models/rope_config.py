"""Rotary position embedding: which frequencies a configuration asks for.

Both spellings are read: `rope_theta` with `rope_scaling` (`type` or `rope_type`), and the newer
`rope_parameters`, which may differ by kind of layer (Gemma-3).
Sources: RoPE arXiv 2104.09864; YaRN arXiv 2309.00071; LongRoPE arXiv 2402.13753; Llama-3.1's report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from octavo_engine.errors import UnsupportedModel

DEFAULT_THETA: Final = 10000.0
KINDS: Final = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
ALIASES: Final = {"su": "longrope"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Frequencies of one kind of layer."""

    kind: str
    theta: float
    rotary_dim: int
    """Leading dimensions of a head that are rotated."""
    max_position_embeddings: int
    parameters: tuple[tuple[str, object], ...] = ()
    """What the kind needs besides, sorted by name."""

    @property
    def longest_context(self) -> int:
        """Tokens that it can tell apart: what the model declares, or with dynamic scaling a multiple."""
        if self.kind != "dynamic":
            return self.max_position_embeddings
        return int(self.max_position_embeddings * self.number("factor"))

    def number(self, name: str, default: float | None = None) -> float:
        """A parameter of this kind."""
        value = dict(self.parameters).get(name, default)
        if not isinstance(value, int | float):
            raise UnsupportedModel(f"rope_scaling.{name}: must be a number for {self.kind}, got {value!r}")
        return float(value)


def parse_rope(config: Mapping[str, object], *, head_dim: int, layer_kind: str) -> RopeConfig:
    """Read the rotary embedding of one kind of layer; an unknown scaling is refused, never ignored."""
    stated = _stated_parameters(config, layer_kind)
    kind = str(stated.get("rope_type") or stated.get("type") or "")
    kind = ALIASES.get(kind, kind)
    if not kind:
        if set(stated) - {"rope_theta", "partial_rotary_factor"}:
            raise UnsupportedModel(f"rope_scaling: has {sorted(stated)} but neither rope_type nor type")
        kind = "default"
    if kind not in KINDS:
        raise UnsupportedModel(f"rope_scaling: type {kind!r} is not one of {', '.join(KINDS)}")
    partial = stated.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    rotary_dim = int(head_dim * _number(partial, 1.0, "partial_rotary_factor"))
    if rotary_dim % 2:
        raise UnsupportedModel(f"partial_rotary_factor: {rotary_dim} of {head_dim} dimensions make no pairs")
    return RopeConfig(
        kind=kind,
        theta=_theta(config, stated, layer_kind),
        rotary_dim=rotary_dim,
        max_position_embeddings=int(
            _number(config.get("max_position_embeddings"), 0, "max_position_embeddings")
        ),
        parameters=tuple(sorted((name, _hashable(value)) for name, value in _details(config, stated))),
    )


def yarn_scale(factor: float, scale: float) -> float:
    """By how much yarn raises attention scores (as their root) when the context grew by `factor`."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _stated_parameters(config: Mapping[str, object], layer_kind: str) -> Mapping[str, object]:
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping):
        by_kind = parameters.get(layer_kind)
        return by_kind if isinstance(by_kind, Mapping) else parameters
    scaling = config.get("rope_scaling")
    if scaling is None or (layer_kind == "sliding_attention" and "rope_local_base_freq" in config):
        return {}  # Gemma-3 scales its full layers only
    if not isinstance(scaling, Mapping):
        raise UnsupportedModel(f"rope_scaling: must be an object, got {scaling!r}")
    return scaling


def _theta(config: Mapping[str, object], stated: Mapping[str, object], layer_kind: str) -> float:
    local = config.get("rope_local_base_freq") if layer_kind == "sliding_attention" else None
    chosen = stated.get("rope_theta") or local or config.get("rope_theta")
    return _number(chosen, DEFAULT_THETA, "rope_theta")


def _details(config: Mapping[str, object], stated: Mapping[str, object]) -> list[tuple[str, object]]:
    """The kind's own numbers, with the original context length wherever it was written."""
    skipped = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    details = {name: value for name, value in stated.items() if name not in skipped and value is not None}
    original = config.get("original_max_position_embeddings")
    if original is not None:
        details.setdefault("original_max_position_embeddings", original)
    return list(details.items())


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _number(value: object, default: float, name: str) -> float:
    if value is None:
        return default
    if not isinstance(value, int | float):
        raise UnsupportedModel(f"{name}: must be a number, got {value!r}")
    return float(value)
