"""What full and sliding groups need, hold and can skip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.scheduling.kv_groups import KVCacheGroup, common_hit, max_sequence_tokens

FULL = KVCacheGroup(layers=(0,))
SLIDING = KVCacheGroup(layers=(0,), window=6)
FLAGS = st.lists(st.booleans(), max_size=12)


def needed_blocks(group: KVCacheGroup, count: int, block_size: int) -> set[int]:
    """By definition: blocks of the tokens that the token after `count` blocks attends to."""
    position = count * block_size
    first = 0 if group.window is None else max(0, position - group.window + 1)
    return {token // block_size for token in range(first, position)}


@pytest.mark.parametrize("group", [FULL, SLIDING, KVCacheGroup(layers=(0,), window=1)])
@given(flags=FLAGS, limit=st.integers(0, 12), block_size=st.integers(1, 5))
def test_longest_hit_is_the_last_point_whose_needs_are_cached(
    group: KVCacheGroup, flags: list[bool], limit: int, block_size: int
) -> None:
    possible = [
        count
        for count in range(min(limit, len(flags)) + 1)
        if all(flags[block] for block in needed_blocks(group, count, block_size))
    ]
    assert group.longest_hit(flags, limit, block_size) == max(possible)


@given(full=FLAGS, sliding=FLAGS, limit=st.integers(0, 12))
def test_common_hit_satisfies_every_group(full: list[bool], sliding: list[bool], limit: int) -> None:
    hit = common_hit((FULL, SLIDING), (full, sliding), limit=limit, block_size=4)
    for group, flags in ((FULL, full), (SLIDING, sliding)):
        assert all(flags[block] for block in needed_blocks(group, hit, 4))


@given(
    window=st.integers(1, 40),
    block_size=st.integers(1, 8),
    chunks=st.lists(st.integers(1, 16), min_size=1, max_size=12),
)
def test_sliding_group_never_holds_more_than_it_says(window: int, block_size: int, chunks: list[int]) -> None:
    group = KVCacheGroup(layers=(0,), window=window)
    limit = group.max_blocks_held(sum(chunks), block_size=block_size, max_chunk=max(chunks))
    computed = 0
    for chunk in chunks:
        first = group.first_needed_block(computed, block_size)
        computed += chunk
        assert -(-computed // block_size) - first <= limit


def test_longest_sequence_of_a_pool_grows_with_the_pool_and_is_unbounded_inside_windows() -> None:
    def longest(groups: tuple[KVCacheGroup, ...], num_blocks: int) -> int:
        return max_sequence_tokens(groups, num_blocks=num_blocks, block_size=4, max_chunk=4, limit=1000)

    assert longest((FULL,), 5) == 20
    assert longest((FULL, SLIDING), 12) == 32
    assert longest((SLIDING,), 4) == 1000
    assert longest((FULL,), 1000) == 1000
