"""What full, sliding and chunked groups need, hold and can skip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.scheduling.kv_groups import KVCacheGroup, common_hit, max_sequence_tokens
from tests.octavo_engine.scheduling.paged_memory import first_attended

FULL = KVCacheGroup(layers=(0,))
SLIDING = KVCacheGroup(layers=(0,), window=6)
CHUNKED = KVCacheGroup(layers=(0,), window=6, chunked=True)
FLAGS = st.lists(st.booleans(), max_size=12)


def needed_blocks(group: KVCacheGroup, count: int, block_size: int) -> set[int]:
    """By definition: blocks of the tokens that the token after `count` blocks attends to."""
    position = count * block_size
    first = first_attended(position, group.window, chunked=group.chunked)
    return {token // block_size for token in range(first, position)}


@pytest.mark.parametrize(
    "group",
    [
        FULL,
        SLIDING,
        CHUNKED,
        KVCacheGroup(layers=(0,), window=1),
        KVCacheGroup(layers=(0,), window=1, chunked=True),
    ],
)
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


@given(flags=st.lists(FLAGS, min_size=3, max_size=3), limit=st.integers(0, 12), block_size=st.integers(1, 5))
def test_common_hit_is_the_longest_that_satisfies_every_group(
    flags: list[list[bool]], limit: int, block_size: int
) -> None:
    groups = (FULL, SLIDING, CHUNKED)
    possible = [
        count
        for count in range(min(limit, *map(len, flags)) + 1)
        if all(
            cached[block]
            for group, cached in zip(groups, flags, strict=True)
            for block in needed_blocks(group, count, block_size)
        )
    ]
    assert common_hit(groups, flags, limit=limit, block_size=block_size) == max(possible)


def test_chunked_group_needs_nothing_of_a_finished_chunk() -> None:
    group = KVCacheGroup(layers=(0,), window=8, chunked=True)
    assert [group.first_needed_block(count, 4) for count in (7, 8, 15, 16)] == [0, 2, 2, 4]
    assert group.longest_hit([False, False, True, False, False], 5, 4) == 4
    assert common_hit((FULL, group), ([True] * 5, [False] * 5), limit=5, block_size=4) == 4


@given(
    window=st.integers(1, 40),
    chunked=st.booleans(),
    block_size=st.integers(1, 8),
    chunks=st.lists(st.integers(1, 16), min_size=1, max_size=12),
)
def test_group_with_a_window_never_holds_more_than_it_says(
    window: int, chunked: bool, block_size: int, chunks: list[int]
) -> None:
    group = KVCacheGroup(layers=(0,), window=window, chunked=chunked)
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
    assert longest((KVCacheGroup(layers=(0,), window=8, chunked=True),), 3) == 1000
    assert longest((FULL,), 1000) == 1000
