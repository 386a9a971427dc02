"""Which stored revisions may be forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def prunable_revisions(numbers: Mapping[str, int], *, in_use: Collection[str], limit: int) -> tuple[str, ...]:
    """The oldest beyond the limit, never one that has pods or is asked for.

    >>> prunable_revisions({"a": 1, "b": 2, "c": 3}, in_use={"a"}, limit=1)
    ('b',)
    """
    idle = sorted((one for one in numbers if one not in in_use), key=lambda one: numbers[one])
    return tuple(idle[: max(0, len(idle) - limit)])


def next_number(numbers: Mapping[str, int]) -> int:
    return max(numbers.values(), default=0) + 1
