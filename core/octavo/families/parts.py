"""The smallest pieces that every family is put together from."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config_fields import ConfigFields
from octavo.layers import Cache, Weight, WeightRole

Switch = bool | str
"""A fixed yes or no, or the name of the configuration field that decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A mixer or an MLP: what it stores for a sequence, and its weights."""

    weights: tuple[Weight, ...]
    caches: tuple[Cache, ...] = ()
    width: int = 0
    """Elements per token of the widest intermediate."""


NOTHING = Part(weights=())
"""A layer without a mixer, or without an MLP."""


def is_on(fields: ConfigFields, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else fields.flag(switch)


def vector(path: str, size: int, *, copies: int = 1) -> Weight:
    """A bias or a norm: small, never quantized, on every device."""
    return Weight(path=path, outputs=size, copies=copies, role="vector", pieces=1)


def linear(
    path: str,
    outputs: int,
    inputs: int,
    *,
    bias: bool = False,
    pieces: int | None = None,
    role: WeightRole = "linear",
) -> list[Weight]:
    """A linear map, with its bias if it has one."""
    weight = Weight(path=path, outputs=outputs, inputs=inputs, pieces=pieces, role=role)
    return [weight, vector(f"{path}.bias", outputs)] if bias else [weight]


def embedding(path: str, rows: int, width: int) -> Weight:
    return Weight(path=path, outputs=rows, inputs=width, role="embedding")


def head(path: str, rows: int, width: int, *, bias: bool = False) -> list[Weight]:
    """The map from the last hidden state to the vocabulary."""
    return linear(path, rows, width, bias=bias, role="head")


def mlp_weights(
    path: str, hidden: int, width: int, *, gated: bool = True, bias: bool = False
) -> list[Weight]:
    """Gate, up and down; not gated, up and down."""
    gate = linear(f"{path}.gate_proj", width, hidden, bias=bias) if gated else []
    up = linear(f"{path}.up_proj", width, hidden, bias=bias)
    return [*gate, *up, *linear(f"{path}.down_proj", hidden, width, bias=bias)]
