"""The states of blocks, the order of reuse, and what counts as a broken pool."""

from __future__ import annotations

import pytest

from octavo_engine.scheduling.block_pool import NULL_BLOCK, BlockCounts, BlockPool


def key(name: str) -> tuple[int, bytes]:
    return (0, name.encode())


def pool_with_cached(*names: str, num_blocks: int = 4) -> tuple[BlockPool, list[int]]:
    pool = BlockPool(num_blocks=num_blocks)
    blocks = pool.allocate(len(names))
    for block_id, name in zip(blocks, names, strict=True):
        pool.register(block_id, key(name))
    return pool, blocks


def test_pool_hands_out_every_block_but_the_null_block() -> None:
    pool = BlockPool(num_blocks=3)
    assert sorted(pool.allocate(3)) == [1, 2, 3]
    assert pool.num_available == 0
    pool.check_integrity()


def test_pool_refuses_to_hand_out_more_than_it_has() -> None:
    with pytest.raises(AssertionError, match="3 blocks asked for, 2 available"):
        BlockPool(num_blocks=2).allocate(3)


def test_block_is_free_again_when_its_last_reference_is_released() -> None:
    pool, blocks = pool_with_cached("a")
    pool.reference(blocks)
    pool.release(blocks)
    assert pool.counts == BlockCounts(total=4, referenced=1, cached=0, free=3)
    pool.release(blocks)
    assert pool.counts == BlockCounts(total=4, referenced=0, cached=1, free=3)
    pool.check_integrity()


def test_release_of_a_block_that_nobody_holds_is_a_mistake() -> None:
    pool = BlockPool(num_blocks=2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="releasing Block"):
        pool.release(blocks)


def test_longest_idle_block_is_reused_first_and_loses_its_hash() -> None:
    pool, blocks = pool_with_cached("a", "b", "c", "d")
    pool.release([blocks[2], blocks[0], blocks[1], blocks[3]])
    assert pool.allocate(1) == [blocks[2]]
    assert pool.lookup(key("c")) is None
    assert pool.lookup(key("a")) == blocks[0]
    pool.check_integrity()


def test_cache_hit_takes_an_idle_block_off_the_free_list() -> None:
    pool, blocks = pool_with_cached("a", "b")
    pool.release(blocks)
    assert pool.is_idle(blocks[0])
    pool.reference([blocks[0], NULL_BLOCK])
    assert not pool.is_idle(blocks[0])
    assert blocks[0] not in pool.allocate(3)
    pool.check_integrity()


def test_second_block_with_the_same_content_stays_nameless() -> None:
    pool, (first,) = pool_with_cached("a")
    (second,) = pool.allocate(1)
    pool.register(second, key("a"))
    assert pool.lookup(key("a")) == first
    pool.release([first, second])
    assert pool.counts == BlockCounts(total=4, referenced=0, cached=1, free=3)
    pool.check_integrity()


def test_forgetting_drops_idle_prefixes_and_keeps_those_in_use() -> None:
    pool, blocks = pool_with_cached("used", "idle")
    pool.release(blocks[1:])
    pool.forget_cached()
    assert pool.lookup(key("idle")) is None
    assert pool.lookup(key("used")) == blocks[0]
    pool.check_integrity()


def test_integrity_check_sees_a_reference_that_was_not_counted() -> None:
    pool = BlockPool(num_blocks=2)
    (block_id,) = pool.allocate(1)
    pool._blocks[block_id].ref_count = 0
    with pytest.raises(AssertionError, match="free list differ"):
        pool.check_integrity()
