"""What LoRA adapters add to a projection, each to the rows of its own sequences only.

An adapter brings for a stored projection two narrow matrices: `out += (x @ down) @ up`. The rows of one
step lie sorted by adapter, so that each adapter's are slices, and nothing is gathered or copied.

Letters in shapes: T rows, R rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """One adapter's part for one stored projection; the scale is multiplied into `up`."""

    down: Tensor  # [in, R]
    up: Tensor  # [R, out]

    @property
    def num_bytes(self) -> int:
        return self.down.nbytes + self.up.nbytes


@dataclass(slots=True)
class StepRows:
    """Which rows of the present step belong to which adapter; the same for all projections."""

    spans: Sequence[tuple[str, slice]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """The adapters of one projection, which may be several stored ones side by side."""

    rows: StepRows
    parts: dict[str, list[tuple[slice, LowRank]]] = field(default_factory=dict)
    """By adapter, with the columns that each part adds to."""

    def add_to(self, out: Tensor, x: Tensor) -> None:  # [T, out], [T, in]
        """Add in place what the adapters of this step's rows add."""
        for adapter, rows in self.rows.spans:
            for columns, part in self.parts.get(adapter, ()):
                out[rows, columns].addmm_(x[rows] @ part.down, part.up)
