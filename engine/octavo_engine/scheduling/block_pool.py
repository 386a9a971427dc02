"""The blocks of the KV cache: who holds them, which may be reused, and which still hold a known prefix.

Terms: a *block* holds the keys and values of `block_size` consecutive tokens of one sequence for the
layers of one KV-cache group. Each block but the null block is in exactly one of three states:

| state       | references | hash | on the free list |
|-------------|------------|------|------------------|
| free        | 0          | no   | yes              |
| cached-idle | 0          | yes  | yes              |
| referenced  | 1 or more  | any  | no               |

The free list is in order of last use, so that what is taken from its head is free or was idle longest.
Block 0 is the null block: never handed out, it stands in tables where a window has slid past.
Source: PagedAttention, arXiv 2309.06180, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

NULL_BLOCK: Final = 0

BlockKey = tuple[int, bytes]
"""KV-cache group and hash of the tokens up to the end of the block."""


class Block:
    """One block's state; `previous` and `next` link it into the free list."""

    __slots__ = ("block_id", "key", "next", "previous", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: BlockKey | None = None
        self.previous: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        """Name what an assertion needs."""
        return f"Block({self.block_id}, ref_count={self.ref_count}, cached={self.key is not None})"


class FreeList:
    """Doubly linked list between two sentinels: every operation is O(1), also removal from the middle."""

    __slots__ = ("_head", "_tail", "size")

    def __init__(self) -> None:
        self._head, self._tail = Block(-1), Block(-2)
        self._head.next, self._tail.previous = self._tail, self._head
        self.size = 0

    def append(self, block: Block) -> None:
        """Put a block where it is reused last."""
        last = self._tail.previous
        assert last is not None and block.next is None, f"{block} is on the free list already"
        last.next, block.previous = block, last
        block.next, self._tail.previous = self._tail, block
        self.size += 1

    def remove(self, block: Block) -> None:
        """Take out one block, wherever it stands."""
        before, after = block.previous, block.next
        assert before is not None and after is not None, f"{block} is not on the free list"
        before.next, after.previous = after, before
        block.previous = block.next = None
        self.size -= 1

    def pop_first(self) -> Block:
        """Take the block that was used longest ago."""
        assert self.size > 0, "the free list is empty"
        first = self._head.next
        assert first is not None
        self.remove(first)
        return first

    def __iter__(self) -> Iterator[Block]:
        """From the first to be reused to the last."""
        block = self._head.next
        while block is not None and block is not self._tail:
            yield block
            block = block.next


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounts:
    """How the blocks divide; `total` counts all but the null block."""

    total: int
    referenced: int
    cached: int
    free: int


class BlockPool:
    """All blocks of one engine, equal in size whatever group uses them."""

    def __init__(self, *, num_blocks: int) -> None:
        """`num_blocks` usable blocks, ids 1 to `num_blocks`; the null block comes on top."""
        assert num_blocks >= 1, f"a pool needs a block, got {num_blocks}"
        self.num_blocks = num_blocks
        self._blocks = [Block(block_id) for block_id in range(num_blocks + 1)]
        self._free = FreeList()
        for block in self._blocks[1:]:
            self._free.append(block)
        self._by_key: dict[BlockKey, Block] = {}
        self._num_cached_idle = 0

    @property
    def num_available(self) -> int:
        """Blocks that can be handed out now: free and cached-idle ones."""
        return self._free.size

    @property
    def counts(self) -> BlockCounts:
        """The division into states."""
        return BlockCounts(
            total=self.num_blocks,
            referenced=self.num_blocks - self._free.size,
            cached=self._num_cached_idle,
            free=self._free.size - self._num_cached_idle,
        )

    def ref_count(self, block_id: int) -> int:
        """How many tables name the block."""
        return self._blocks[block_id].ref_count

    def allocate(self, count: int) -> list[int]:
        """Hand out `count` blocks, each with one reference; the longest idle cached ones lose their hash."""
        assert count <= self._free.size, f"{count} blocks asked for, {self._free.size} available"
        return [self._take_first().block_id for _ in range(count)]

    def _take_first(self) -> Block:
        block = self._free.pop_first()
        if block.key is not None:
            del self._by_key[block.key]
            block.key = None
            self._num_cached_idle -= 1
        block.ref_count = 1
        return block

    def lookup(self, key: BlockKey) -> int | None:
        """The block that holds this prefix, referenced or idle, without taking a reference."""
        block = self._by_key.get(key)
        return None if block is None else block.block_id

    def is_idle(self, block_id: int) -> bool:
        """Whether taking a reference would use up an available block."""
        return self._blocks[block_id].ref_count == 0

    def reference(self, block_ids: Iterable[int]) -> None:
        """Take one more reference to each block (a cache hit); null entries are passed over."""
        for block_id in block_ids:
            if block_id == NULL_BLOCK:
                continue
            block = self._blocks[block_id]
            if block.ref_count == 0:
                assert block.key is not None, f"referencing {block}, whose content is unknown"
                self._free.remove(block)
                self._num_cached_idle -= 1
            block.ref_count += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Give back one reference to each block, in the order in which they may be reused.

        Callers pass a sequence's tail first: a prefix without its tail is still of use, a tail
        without its prefix is not.
        """
        for block_id in block_ids:
            if block_id == NULL_BLOCK:
                continue
            block = self._blocks[block_id]
            assert block.ref_count > 0, f"releasing {block}"
            block.ref_count -= 1
            if block.ref_count == 0:
                self._free.append(block)
                self._num_cached_idle += block.key is not None

    def register(self, block_id: int, key: BlockKey) -> None:
        """Make a full block findable; if another block holds the same prefix already, that one stays."""
        block = self._blocks[block_id]
        assert block.ref_count > 0, f"registering {block}, which nobody holds"
        if block.key is None and key not in self._by_key:
            block.key = key
            self._by_key[key] = block

    def forget_cached(self) -> None:
        """Drop every cached prefix that nobody holds at the moment."""
        for block in self._free:
            if block.key is not None:
                del self._by_key[block.key]
                block.key = None
        self._num_cached_idle = 0

    def check_integrity(self) -> None:
        """Assert that each block is in exactly one state and that the indexes agree."""
        on_list = [block.block_id for block in self._free]
        assert len(on_list) == len(set(on_list)) == self._free.size, "free list names a block twice"
        assert NULL_BLOCK not in on_list and self._blocks[NULL_BLOCK].ref_count == 0, "null block in use"
        idle = {block.block_id for block in self._blocks[1:] if block.ref_count == 0}
        assert idle == set(on_list), f"idle blocks and free list differ: {idle ^ set(on_list)}"
        keyed = {block.key: block for block in self._blocks if block.key is not None}
        assert keyed == self._by_key, "hash index and blocks differ"
        cached_idle = sum(block.ref_count == 0 for block in keyed.values())
        assert cached_idle == self._num_cached_idle, f"{cached_idle} cached, {self._num_cached_idle} counted"
