"""Bytes of quantized weights: what each method stores for one matrix, and which matrices it leaves.

Terms: a *scheme* is bits per element plus what comes with them (scales, zero points, an order).
Methods quantize linear maps and experts; embeddings, norms, routers and, unless stated, the head stay
in the served type, and so does what the file's exclusion list names.
Source: the checkpoint formats of GPTQ, AWQ, bitsandbytes, compressed-tensors, ModelOpt, and OCP MX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.layers import Weight, WeightRole
from octavo.units import ceil_div

LINEAR_AND_EXPERTS: Final[frozenset[WeightRole]] = frozenset({"linear", "expert"})
EXPERTS_ONLY: Final[frozenset[WeightRole]] = frozenset({"expert"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What one quantized matrix of `outputs × inputs` stores."""

    bits: int
    group_size: int = 0
    """Inputs that share one scale; 0: one scale for each output (or none, if `scale_bits` is 0)."""
    scale_bits: int = 0
    zero_bits: int = 0
    """Of the zero point beside each scale."""
    block: tuple[int, int] | None = None
    """Outputs × inputs that share one scale, where both are cut."""
    index_bits: int = 0
    """For each input: the order in which GPTQ took the columns."""


def scheme_bytes(scheme: Scheme, outputs: int, inputs: int) -> int:
    """Bytes of one matrix.

    >>> scheme_bytes(Scheme(bits=4, group_size=32, scale_bits=8), 64, 64)  # MXFP4
    2176
    """
    if scheme.block is not None:
        groups = ceil_div(outputs, scheme.block[0]) * ceil_div(inputs, scheme.block[1])
    elif scheme.group_size:
        groups = outputs * ceil_div(inputs, scheme.group_size)
    else:
        groups = outputs
    bits = outputs * inputs * scheme.bits + groups * (scheme.scale_bits + scheme.zero_bits)
    return ceil_div(bits + inputs * scheme.index_bits, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One entry of a list of modules that stay as they were."""

    components: tuple[str, ...]
    """Of the dotted name, from `layers` on where the entry names a layer; `*` stands for any."""
    anywhere: bool = False
    """True for a pattern of the form `.*text.*`: the text may lie anywhere in a component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a checkpoint's weights are quantized."""

    method: str
    scheme: Scheme
    roles: frozenset[WeightRole] = LINEAR_AND_EXPERTS
    excluded: tuple[Exclusion, ...] = ()
    exact: bool = True
    """False: the method is not described, so that sizes are those of unquantized weights."""


def quantized_bytes(quantization: Quantization, weight: Weight, layer: int | None) -> int | None:
    """Bytes of one weight (all copies), or None where it stays unquantized."""
    if not quantization.exact or weight.role not in quantization.roles:
        return None
    if any(is_excluded(entry, weight.path, layer) for entry in quantization.excluded):
        return None
    return weight.copies * scheme_bytes(quantization.scheme, weight.outputs, weight.inputs)


def is_excluded(entry: Exclusion, path: str, layer: int | None) -> bool:
    """Whether an entry names the weight, its module, or a module around it."""
    name = tuple(path.split("."))
    if layer is not None:
        name = ("layers", str(layer), *name)
    if entry.anywhere:
        return entry.components[0] in ".".join(name)
    length = len(entry.components)
    starts = range(len(name) - length + 1)
    return any(_matches(entry.components, name[start : start + length]) for start in starts)


def _matches(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return all(want in ("*", have) for want, have in zip(pattern, name, strict=True))
