"""What the engine counts for the planner, in runs that a reader can count along.

Blocks hold 16 tokens, a step 16 tokens of a prompt at most.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.engine_contract import OUTPUT_BOUNDS, UNCACHED_PROMPT_BOUNDS
from octavo_engine.llm_engine import LLMEngine
from tests.octavo_engine.oracle import load_engine, request, run_until_idle, save_tiny_model


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"), num_hidden_layers=1)


def load(model_dir: Path, **changes: object) -> LLMEngine:
    return load_engine(model_dir, max_num_batched_tokens=16, **changes)


def test_step_sums_are_those_counted_by_hand_for_one_sequence(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("a", range(10, 50), 3)])
    stats = engine.stats()
    # Chunks of 16, 16 and 8, the last of which draws a token; then two steps of one token each.
    assert stats.steps == stats.step_sequences == 5
    assert stats.step_prefill_tokens == 40
    assert stats.step_context_tokens == 16 + 32 + 40 + 41 + 42
    assert stats.generated_tokens == 3
    assert stats.step_seconds > 0


def test_step_sums_count_every_sequence_of_a_step(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("a", range(10, 14), 3), request("b", range(20, 28), 3)])
    stats = engine.stats()
    assert stats.steps == 3
    assert stats.step_sequences == 6
    assert stats.step_prefill_tokens == 4 + 8
    assert stats.step_context_tokens == (4 + 8) + (5 + 9) + (6 + 10)


def test_cached_prefix_is_not_prefilled_but_read_at_every_step(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("a", range(10, 50), 1)])
    before = engine.stats()
    run_until_idle(engine, [request("b", range(10, 50), 2)])
    after = engine.stats()
    assert after.step_prefill_tokens - before.step_prefill_tokens == 8
    assert after.step_context_tokens - before.step_context_tokens == 40 + 41
    assert after.uncached_prompt_tokens_squared == 40**2 + 8**2
    assert after.prompt_tokens - after.cached_prompt_tokens == 40 + 8
    # 40 is in the bucket up to 48, 8 in that up to 16.
    counted = dict(zip(UNCACHED_PROMPT_BOUNDS, after.uncached_prompt_buckets, strict=False))
    assert {bound for bound, count in counted.items() if count} == {16, 48}
    assert sum(after.uncached_prompt_buckets) == after.admitted == 2


def test_outputs_are_counted_when_a_sequence_ends_by_itself(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("a", [10], 3), request("b", [11], 5)])
    assert engine.add_request(request("c", [12], 9)) is None
    engine.step(0.0)
    engine.abort("c", "abort")
    stats = engine.stats()
    counted = dict(zip(OUTPUT_BOUNDS, stats.output_buckets, strict=False))
    assert {bound for bound, count in counted.items() if count} == {3, 6}
    assert (sum(stats.output_buckets), stats.output_tokens) == (2, 8)


def test_prompt_of_one_token_is_prefill_too(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("a", [10], 2)])
    assert engine.stats().step_prefill_tokens == 1


def test_recomputation_is_prefill_and_no_admission(model_dir: Path) -> None:
    engine = load(model_dir, enable_prefix_caching=False)
    assert engine.add_request(request("a", range(10, 20), 3)) is None
    engine.step(0.0)
    engine.preempt_newest()
    while engine.has_work():
        engine.step(0.0)
    stats = engine.stats()
    assert stats.preemptions == 1
    assert stats.recomputed_tokens == 10
    # 10 at first; then the 10 again with the token drawn from them.
    assert stats.step_prefill_tokens == 10 + 11
    assert stats.admitted == sum(stats.uncached_prompt_buckets) == 1
    assert stats.uncached_prompt_tokens_squared == 100


def test_drafts_are_neither_prefill_nor_sequences(model_dir: Path) -> None:
    engine = load(model_dir, speculative_ngram=4)
    run_until_idle(engine, [request("a", [7, 8] * 8, 40)])
    stats = engine.stats()
    assert stats.draft_tokens > 0
    assert stats.step_prefill_tokens == 16
    assert stats.step_sequences == stats.steps


def test_shared_blocks_are_referenced_once(model_dir: Path) -> None:
    engine = load(model_dir)
    run_until_idle(engine, [request("warm", range(10, 50), 1)])
    for name in ("a", "b", "c"):
        assert engine.add_request(request(name, range(10, 50), 5)) is None
    engine.step(0.0)
    engine.step(0.0)
    stats = engine.stats()
    assert stats.num_running == 3
    assert stats.kv_tokens_per_block == 16
    assert stats.blocks_referenced == 2 + 3  # two full blocks for all, and the third one's own


def test_layers_with_a_window_count_for_what_they_read(tmp_path: Path) -> None:
    folder = save_tiny_model(
        tmp_path,
        "Gemma3TextConfig",
        num_hidden_layers=2,
        head_dim=16,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )
    engine = load(folder)
    run_until_idle(engine, [request("a", range(10, 74), 1)])
    stats, facts = engine.stats(), engine.facts
    # Chunks end at 16, 32, 48, 64. The full layer reads as much; the one with a window from the block on
    # that its first new token still sees: 16, then 32 (its own block and the one before) each time.
    assert stats.step_context_tokens == ((16 + 32 + 48 + 64) + (16 + 32 + 32 + 32)) / 2
    assert stats.kv_tokens_per_block == 8  # a token takes a slot in a block of either layer
    assert facts.kv_bytes_per_token == 2 * (
        2 * 2 * 16 * 4
    )  # layers × (keys and values × heads × dim × bytes)


def test_facts_name_the_sizes_that_a_step_costs(model_dir: Path) -> None:
    facts = load(model_dir).facts
    assert facts.max_num_batched_tokens == 16
    assert facts.kv_bytes_per_token == 2 * 2 * 16 * 4
    assert facts.weights_bytes % 4 == 0 and facts.weights_bytes > 256 * 64 * 4
