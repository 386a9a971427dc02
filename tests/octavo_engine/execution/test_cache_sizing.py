"""The pool's size: what bounds it, and that it takes memory only as blocks are written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo_engine.execution import cache_sizing
from octavo_engine.execution.kv_cache import KVCache, KVCacheShape
from octavo_engine.memory import MIB, resident_bytes
from octavo_engine.scheduling.kv_groups import KVCacheGroup
from tests.octavo_engine.oracle import load_engine, save_tiny_model

SHAPE = KVCacheShape(
    groups=(KVCacheGroup(layers=(0, 1)),),
    block_size=16,
    num_kv_heads=8,
    key_dim=64,
    value_dim=64,
    dtype=torch.bfloat16,
)
UNASKED_BLOCKS = 20


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch, model_dir: Path) -> None:
    """A machine without a cgroup limit, and little to take unasked."""
    block_bytes = load_engine(model_dir).facts.block_bytes
    monkeypatch.setattr(cache_sizing, "cgroup_limit_bytes", lambda: None)
    monkeypatch.setattr(cache_sizing, "UNASKED_POOL_BYTES", UNASKED_BLOCKS * block_bytes)


def test_pool_takes_memory_only_for_the_blocks_that_are_written() -> None:
    before = resident_bytes()
    cache = KVCache(SHAPE, num_blocks=8192, device=torch.device("cpu"))
    assert sum(tensor.nbytes for tensor in (*cache.keys, *cache.values)) > 500 * MIB
    assert resident_bytes() - before < 8 * MIB
    assert cache.keys[1].dtype == torch.bfloat16 and not cache.keys[1][5000:5010].any()
    for tensor in (*cache.keys, *cache.values):
        tensor[1:1025] = 1.0
    assert 40 * MIB < resident_bytes() - before < 100 * MIB


@pytest.mark.usefixtures("unlimited")
def test_pool_is_modest_where_neither_limit_nor_plan_says_what_it_may_take(model_dir: Path) -> None:
    facts = load_engine(model_dir, num_kv_blocks=None).facts
    assert (facts.num_kv_blocks, facts.kv_blocks_bound) == (UNASKED_BLOCKS, cache_sizing.BOUND_UNASKED)
    assert facts.max_model_len == UNASKED_BLOCKS * 16
    assert facts.measured_kv_blocks > 1000


@pytest.mark.usefixtures("unlimited")
def test_pool_holds_the_context_length_that_was_asked_for_all_the_same(model_dir: Path) -> None:
    facts = load_engine(model_dir, num_kv_blocks=None, max_model_len=500).facts
    assert (facts.num_kv_blocks, facts.max_model_len) == (32, 500)


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(
    ("settings", "num_blocks", "bound"),
    [
        pytest.param({"planned_kv_blocks": 300}, 300, cache_sizing.BOUND_PLANNED, id="plan"),
        pytest.param({"memory_limit_bytes": 1 << 40}, 64 * 512 // 16, cache_sizing.BOUND_USEFUL, id="limit"),
        pytest.param({"num_kv_blocks": 3000}, 3000, cache_sizing.BOUND_ASKED, id="asked for"),
    ],
)
def test_pool_is_as_large_as_it_is_told(
    model_dir: Path, settings: dict[str, int], num_blocks: int, bound: str
) -> None:
    facts = load_engine(model_dir, **{"num_kv_blocks": None, **settings}).facts
    assert (facts.num_kv_blocks, facts.kv_blocks_bound) == (num_blocks, bound)
