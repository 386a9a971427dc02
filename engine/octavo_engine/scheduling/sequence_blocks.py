"""The block tables of sequences: growing, sharing by cache hits, moving on with windows, giving back.

The scheduler decides who runs; this module does what that means for blocks, for every group alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from octavo_engine.scheduling.admission import Forecast
from octavo_engine.scheduling.block_pool import NULL_BLOCK, BlockPool
from octavo_engine.scheduling.kv_groups import KVCacheGroup, common_hit
from octavo_engine.scheduling.prefix_cache import PrefixHasher
from octavo_engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHit:
    """What the cache has of a sequence's start."""

    num_tokens: int
    tables: tuple[tuple[int, ...], ...]
    """For each group its leading blocks; null where the window needs none."""
    next_hash: bytes | None
    """Hash of the first full block that is missing."""


class SequenceBlocks:
    """Block tables over one pool."""

    def __init__(
        self,
        *,
        pool: BlockPool,
        groups: SequenceOf[KVCacheGroup],
        block_size: int,
        max_chunk: int,
        hasher: PrefixHasher,
        enable_prefix_caching: bool,
    ) -> None:
        self._pool = pool
        self._groups = tuple(groups)
        self._block_size = block_size
        self._max_chunk = max_chunk
        self._hasher = hasher
        self._caching = enable_prefix_caching

    # Cache hits ---------------------------------------------------------------------------------

    def find_hit(self, sequence: Sequence) -> CacheHit:
        """The longest cached start that leaves at least one token to compute."""
        limit = (sequence.num_tokens - 1) // self._block_size
        if not self._caching or limit == 0:
            return self._no_hit(sequence)
        self._hash(sequence)
        found = [self._lookup(index, sequence, limit) for index in range(len(self._groups))]
        known = max(map(len, found))
        flags = [
            [index < len(blocks) and blocks[index] != NULL_BLOCK for index in range(known)]
            for blocks in found
        ]
        count = common_hit(self._groups, flags, limit=known, block_size=self._block_size)
        tables = [
            self._without_passed(group, blocks[:count], count)
            for group, blocks in zip(self._groups, found, strict=True)
        ]
        hashes = sequence.block_hashes
        return CacheHit(
            num_tokens=count * self._block_size,
            tables=tuple(tables),
            next_hash=hashes[count] if count < min(limit, len(hashes)) else None,
        )

    def _no_hit(self, sequence: Sequence) -> CacheHit:
        return CacheHit(num_tokens=0, tables=tuple(() for _ in self._groups), next_hash=None)

    def _lookup(self, group_index: int, sequence: Sequence, limit: int) -> list[int]:
        """Cached blocks of one group, null where there is none; a full group's end at its first gap.

        Nothing follows the last: what no group has was never computed, and is no hit though a window
        that begins there needs nothing before it.
        """
        found: list[int] = []
        for block_hash in sequence.block_hashes[:limit]:
            block_id = self._pool.lookup((group_index, block_hash))
            if block_id is None and self._groups[group_index].window is None:
                break
            found.append(NULL_BLOCK if block_id is None else block_id)
        while found and found[-1] == NULL_BLOCK:
            found.pop()
        return found

    def _without_passed(self, group: KVCacheGroup, blocks: list[int], count: int) -> tuple[int, ...]:
        first = group.first_needed_block(count * self._block_size, self._block_size)
        return (*([NULL_BLOCK] * min(first, count)), *blocks[first:])

    def _hash(self, sequence: Sequence) -> None:
        self._hasher.extend(
            sequence.block_hashes, sequence.token_ids, salt=sequence.salt, adapter=sequence.adapter
        )

    def attach(self, sequence: Sequence, hit: CacheHit) -> None:
        """Start a sequence's tables with a hit's blocks, one more reference each."""
        for table in hit.tables:
            self._pool.reference(table)
        sequence.block_tables = [list(table) for table in hit.tables]
        sequence.num_released_blocks = [_leading_nulls(table) for table in hit.tables]
        sequence.num_computed_tokens = hit.num_tokens
        sequence.num_registered_blocks = hit.num_tokens // self._block_size

    # Growth and return --------------------------------------------------------------------------

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make every table reach `num_tokens`; all or nothing."""
        needed = -(-num_tokens // self._block_size)
        missing = [max(0, needed - len(table)) for table in sequence.block_tables]
        if sum(missing) > self._pool.num_available:
            return False
        for table, count in zip(sequence.block_tables, missing, strict=True):
            table.extend(self._pool.allocate(count))
        return True

    def trim(self, sequence: Sequence) -> None:
        """Give back the blocks that hold no computed token: those of drafts that were wrong."""
        needed = -(-sequence.num_computed_tokens // self._block_size)
        for table in sequence.block_tables:
            self._pool.release(reversed(table[needed:]))
            del table[needed:]

    def free(self, sequence: Sequence) -> None:
        """Give back all blocks, tails first, so that the starts stay cached longest."""
        for table in sequence.block_tables:
            self._pool.release(reversed(table))
        sequence.block_tables = []
        sequence.num_released_blocks = []
        sequence.num_registered_blocks = 0

    def register_full(self, sequence: Sequence) -> None:
        """Make the blocks that are now completely computed findable."""
        if not self._caching:
            return
        full = sequence.num_computed_tokens // self._block_size
        if full == sequence.num_registered_blocks:
            return
        self._hash(sequence)
        for group_index, table in enumerate(sequence.block_tables):
            for index in range(sequence.num_registered_blocks, full):
                if table[index] != NULL_BLOCK:
                    self._pool.register(table[index], (group_index, sequence.block_hashes[index]))
        sequence.num_registered_blocks = full

    def release_passed(self, sequence: Sequence) -> None:
        """Give back the blocks that a window, sliding or of finished chunks, has left behind."""
        for index, (group, table) in enumerate(zip(self._groups, sequence.block_tables, strict=True)):
            first = group.first_needed_block(sequence.num_computed_tokens, self._block_size)
            passed = range(sequence.num_released_blocks[index], min(first, len(table)))
            self._pool.release(table[position] for position in passed)
            for position in passed:
                table[position] = NULL_BLOCK
            sequence.num_released_blocks[index] = max(first, sequence.num_released_blocks[index])

    # Counting -----------------------------------------------------------------------------------

    def hashes_touched_by(self, sequence: Sequence, num_new_tokens: int) -> set[bytes]:
        """Hashes of the blocks that the next `num_new_tokens` of a running sequence fill or go on filling."""
        if not self._caching:
            return set()
        self._hash(sequence)
        size, computed = self._block_size, sequence.num_computed_tokens
        return set(sequence.block_hashes[computed // size : -(-(computed + num_new_tokens) // size)])

    def blocks_to_admit(self, sequence: Sequence, hit: CacheHit) -> int:
        """Available blocks that admission takes for all present tokens: new ones, and idle hits."""
        needed = 0
        most = self._most_held(sequence, sequence.num_tokens, num_computed=hit.num_tokens)
        for count, table in zip(most, hit.tables, strict=True):
            held = [block_id for block_id in table if block_id != NULL_BLOCK]
            needed += max(0, count - len(held))
            needed += sum(self._pool.is_idle(block_id) for block_id in held)
        return needed

    def forecast(
        self, sequence: Sequence, *, growth: int, seen: set[int], hit: CacheHit | None = None
    ) -> Iterator[Forecast]:
        """For each group what a sequence, or a candidate with its hit, holds, and how it grows.

        `growth` is in tokens. Blocks are those of all present tokens, computed or not, less those in
        `seen`, which grows by the ones in its tables. A block that a window leaves before the end is
        neither: each sequence takes one of its own in its place, at a time of its own.
        """
        tables = sequence.block_tables if hit is None else hit.tables
        num_computed = sequence.num_computed_tokens if hit is None else hit.num_tokens
        now = self._most_held(sequence, sequence.num_tokens, num_computed=num_computed)
        then = self._most_held(sequence, sequence.num_tokens + growth, num_computed=num_computed)
        last_token = sequence.num_tokens + growth - 1
        for group, table, most_now, most_then in zip(self._groups, tables, now, then, strict=True):
            held = set(table) - {NULL_BLOCK}
            passed = group.first_needed_block(last_token, self._block_size)
            kept = held.intersection(table[passed:]) if passed else held
            yield Forecast(
                num_blocks=max(most_now, len(held)) - len(kept & seen),
                room_tokens=-sequence.num_tokens % self._block_size,
                remaining_tokens=growth,
                growth_blocks=most_then - most_now,
            )
            seen |= kept

    def _most_held(self, sequence: Sequence, num_tokens: int, *, num_computed: int) -> list[int]:
        """For each group the most blocks held until `num_tokens` are computed, from `num_computed` on.

        What is left of the present text is computed in chunks, output token by token: a window is
        then never wider by a whole chunk.
        """
        chunk = max(1, min(self._max_chunk, sequence.num_tokens - num_computed))
        return [
            group.max_blocks_held(num_tokens, block_size=self._block_size, max_chunk=chunk)
            for group in self._groups
        ]


def _leading_nulls(table: SequenceOf[int]) -> int:
    return next((i for i, block_id in enumerate(table) if block_id != NULL_BLOCK), len(table))
