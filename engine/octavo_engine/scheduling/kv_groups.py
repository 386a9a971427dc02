"""Layers that share a block table, and what each kind of attention asks of its blocks.

A *full* group keeps every block of a sequence. A *sliding* group needs only the tokens inside its
window, a *chunked* group (Llama-4) only those since the last multiple of its window: blocks before
that are given back and their table entries become the null block.
All groups draw equal blocks from one pool; each has its own block table per sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroup:
    """One set of layers with one block table per sequence."""

    layers: tuple[int, ...]
    window: int | None = None
    """A token attends to itself and the `window - 1` tokens before it; None: to all."""
    chunked: bool = False
    """True: windows stand side by side and none slides; a token attends to those before it in its own."""

    def first_visible(self, position: int) -> int:
        """The first position that the token at `position` attends to.

        >>> [KVCacheGroup(layers=(0,), window=16, chunked=True).first_visible(p) for p in (15, 16, 40)]
        [0, 16, 32]
        """
        if self.window is None:
            return 0
        if self.chunked:
            return position // self.window * self.window
        return max(0, position - self.window + 1)

    def first_needed_block(self, num_computed_tokens: int, block_size: int) -> int:
        """Index of the first block that the next token still attends to.

        Token 40 with window 16 sees tokens 25 to 40: block 1 is the first needed.

        >>> KVCacheGroup(layers=(0,), window=16).first_needed_block(40, 16)
        1
        """
        return self.first_visible(num_computed_tokens) // block_size

    def max_blocks_held(self, num_tokens: int, *, block_size: int, max_chunk: int) -> int:
        """Most blocks a sequence of `num_tokens` holds at once, computed in chunks of `max_chunk`.

        >>> KVCacheGroup(layers=(0,), window=16).max_blocks_held(1000, block_size=16, max_chunk=32)
        4
        """
        all_blocks = -(-num_tokens // block_size)
        if self.window is None:
            return all_blocks
        begins_with_a_block = self.chunked and self.window % block_size == 0
        within = -(-(self.window - 1 + max_chunk) // block_size)
        return min(all_blocks, within if begins_with_a_block else within + 1)

    def longest_hit(self, is_cached: Sequence[bool], limit: int, block_size: int) -> int:
        """Blocks, at most `limit`, after which a sequence can go on from cached blocks alone.

        `is_cached[i]` says whether block i is in the cache. A full group needs all blocks before
        that point, the others only those that their window still touches.
        """
        best = run = 0
        for count, cached in enumerate(is_cached[:limit], start=1):
            run = run + 1 if cached else 0
            if run >= count - self.first_needed_block(count * block_size, block_size):
                best = count
        return best


def common_hit(
    groups: Sequence[KVCacheGroup],
    cached: Sequence[Sequence[bool]],
    *,
    limit: int,
    block_size: int,
) -> int:
    """Blocks that every group can skip: the fixed point of shortening to what each can offer."""
    hit = limit
    while True:
        shorter = hit
        for group, is_cached in zip(groups, cached, strict=True):
            shorter = group.longest_hit(is_cached, shorter, block_size)
        if shorter == hit:
            return hit
        hit = shorter


def max_sequence_tokens(
    groups: Sequence[KVCacheGroup], *, num_blocks: int, block_size: int, max_chunk: int, limit: int
) -> int:
    """Longest sequence, at most `limit` tokens, that the whole pool can hold by itself."""

    def fits(num_tokens: int) -> bool:
        held = (g.max_blocks_held(num_tokens, block_size=block_size, max_chunk=max_chunk) for g in groups)
        return sum(held) <= num_blocks

    return _largest(fits, limit)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """Largest n in 0..limit for which the falling predicate holds."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
