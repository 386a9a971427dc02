"""Arithmetic and wording for bytes, shared by all that sizes memory and all that reports it.

Terms: a *GiB* is 2^30 bytes, as engines and Kubernetes' `Gi` use it; never 10^9.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30


def ceil_div(dividend: int, divisor: int) -> int:
    """The least whole number not below `dividend / divisor`, exact for any size.

    >>> ceil_div(17, 16)
    2
    """
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `value`.

    >>> round_up(17, 16)
    32
    """
    return ceil_div(value, multiple) * multiple


def format_bytes(num_bytes: int) -> str:
    """Bytes in the unit a person would choose, at three significant figures or so.

    >>> format_bytes(2_684_354_560)
    '2.50 GiB'
    """
    size = abs(num_bytes)
    if size >= 100 * GIB:
        return f"{num_bytes / GIB:,.0f} GiB"
    if size >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    if size >= MIB:
        return f"{num_bytes / MIB:.0f} MiB"
    if size >= KIB:
        return f"{num_bytes / KIB:.1f} KiB"
    return f"{num_bytes} B"


def format_count(count: int) -> str:
    """A large count as people say it.

    >>> format_count(8_030_261_248)
    '8.03B'
    """
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if count >= unit:
            return f"{count / unit:.2f}{name}"
    return f"{count:,}"
