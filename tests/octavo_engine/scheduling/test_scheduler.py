"""Single decisions of the scheduler: who goes first, who waits, who is preempted."""

from __future__ import annotations

import pytest

from octavo_engine.scheduling.kv_groups import KVCacheGroup
from octavo_engine.scheduling.scheduler import Scheduler
from tests.octavo_engine.scheduling.paged_memory import SimulatedEngine, build_scheduler, continuation


def chunks(scheduler: Scheduler) -> dict[str, int]:
    return {item.sequence.request_id: item.num_new_tokens for item in scheduler.schedule()}


def simulated(**settings: object) -> SimulatedEngine:
    return SimulatedEngine(build_scheduler(**settings))  # type: ignore[arg-type]


def test_prompts_share_the_budget_in_order_of_arrival() -> None:
    engine = simulated(budget=10)
    engine.add([1] * 7, max_tokens=1)
    engine.add([2] * 7, max_tokens=1)
    assert chunks(engine.scheduler) == {"0": 7, "1": 3}


def test_generating_sequences_go_on_while_a_long_prompt_is_computed() -> None:
    engine = simulated(budget=4, num_blocks=40)
    engine.add([1, 2], max_tokens=20)
    engine.step()
    engine.add([3] * 20, max_tokens=2)
    assert chunks(engine.scheduler) == {"0": 1, "1": 3}


def test_oldest_prompt_progresses_though_others_could_fill_the_budget() -> None:
    engine = simulated(budget=2, num_blocks=40)
    engine.add([1] * 3, max_tokens=8)
    engine.add([2], max_tokens=8)
    engine.add([3], max_tokens=8)
    assert engine.run_until_idle() < 40


def test_waiting_request_is_not_overtaken_by_a_smaller_one() -> None:
    engine = simulated(num_blocks=6, budget=32)
    engine.add([1] * 12, max_tokens=8)
    engine.step()
    engine.add([2] * 16, max_tokens=4)
    engine.add([3], max_tokens=1)
    assert chunks(engine.scheduler) == {"0": 1}
    assert [sequence.request_id for sequence in engine.scheduler.waiting] == ["1", "2"]


def test_no_more_than_the_allowed_sequences_run() -> None:
    engine = simulated(max_num_seqs=2, budget=32)
    for token in range(4):
        engine.add([token], max_tokens=2)
    assert len(chunks(engine.scheduler)) == 2


def test_newest_sequence_is_preempted_and_keeps_its_text() -> None:
    engine = simulated(num_blocks=6, budget=32)
    for _ in range(6):  # short outputs: the forecast is then too low
        engine.add([0], max_tokens=1)
    engine.run_until_idle()
    old = engine.add([1] * 7, max_tokens=16)
    new = engine.add([2] * 7, max_tokens=16)
    preempted = []
    while engine.scheduler.has_work():
        engine.step()
        preempted += [sequence.request_id for sequence in engine.scheduler.waiting]
    assert engine.scheduler.counters.preemptions > 0
    assert set(preempted) == {new}
    assert engine.outputs[old] == continuation([1] * 7, "", 16)
    assert engine.outputs[new] == continuation([2] * 7, "", 16)


def ask_again_and_again(
    engine: SimulatedEngine, *, clients: int, steps: int, apart: int, max_tokens: int, same_question: bool
) -> None:
    """Out of step, with limited answers; all questions start with one system prompt."""
    in_flight: dict[int, str] = {}
    for step in range(steps):
        for client in range(min(clients, 1 + step // apart)):
            if engine.scheduler.get(in_flight.get(client, "")) is None:
                question = 0 if same_question else 1 + client
                in_flight[client] = engine.add([0] * 20 + [question] * 20, max_tokens=max_tokens)
        engine.step()


@pytest.mark.parametrize("clients", [6, 10])
@pytest.mark.parametrize("same_question", [True, False], ids=["one-question", "own-questions"])
def test_answers_whose_lengths_are_known_are_never_preempted(clients: int, same_question: bool) -> None:
    engine = simulated(num_blocks=32, block_size=16, budget=512, max_num_seqs=64)
    ask_again_and_again(
        engine, clients=clients, steps=600, apart=7, max_tokens=48, same_question=same_question
    )
    assert len(engine.outputs) > 40
    assert engine.scheduler.counters.preemptions == 0


@pytest.mark.parametrize("same_question", [True, False], ids=["one-question", "own-questions"])
@pytest.mark.parametrize(
    "window",
    [
        pytest.param(KVCacheGroup(layers=(1,), window=32), id="sliding"),
        pytest.param(KVCacheGroup(layers=(1,), window=32, chunked=True), id="chunked"),
    ],
)
def test_answers_of_known_length_are_not_preempted_when_a_window_leaves_the_question_they_share(
    window: KVCacheGroup, same_question: bool
) -> None:
    """Each then holds blocks of its own in the place of shared ones."""
    full = KVCacheGroup(layers=(0,))
    engine = simulated(num_blocks=64, budget=512, max_num_seqs=64, groups=(full, window))
    ask_again_and_again(engine, clients=10, steps=300, apart=3, max_tokens=24, same_question=same_question)
    assert len(engine.outputs) > 20
    assert engine.scheduler.counters.preemptions == 0


def test_preempted_sequence_finds_its_own_blocks_again() -> None:
    engine = simulated(num_blocks=30, budget=64)
    engine.add([1] * 17, max_tokens=4)
    engine.step()
    engine.scheduler.preempt_newest()
    assert chunks(engine.scheduler) == {"0": 2}  # 16 of 18 tokens are cached
    assert engine.scheduler.counters.preemptions == 1


def test_sequence_that_needs_more_than_its_guess_is_not_reserved_for_at_its_limit() -> None:
    engine = simulated(num_blocks=100, budget=64, block_size=4)
    for token in range(2):
        engine.add([token] * 4, max_tokens=390)  # two such limits are more than the pool
    assert len(chunks(engine.scheduler)) == 2


def test_second_of_two_equal_prompts_waits_until_the_first_is_cached() -> None:
    engine = simulated(num_blocks=40, budget=64)
    engine.add([1] * 16, max_tokens=2)
    engine.add([1] * 16, max_tokens=2)
    engine.step()
    assert chunks(engine.scheduler) == {"0": 1, "1": 4}


def test_blocks_that_a_window_left_are_given_back_while_the_sequence_runs() -> None:
    engine = simulated(num_blocks=8, budget=4, groups=(KVCacheGroup(layers=(0,), window=5),), caching=False)
    engine.add([1] * 40, max_tokens=8)
    most = 0
    while engine.scheduler.has_work():
        engine.step()
        most = max(most, engine.scheduler.pool.counts.referenced)
    assert most <= 3
    assert engine.outputs["0"] == continuation([1] * 40, "", 8)


def test_blocks_of_a_finished_chunk_are_given_back_while_the_sequence_runs() -> None:
    chunked = KVCacheGroup(layers=(0,), window=8, chunked=True)
    engine = simulated(num_blocks=8, budget=4, groups=(chunked,), caching=False)
    engine.add([1] * 21, max_tokens=8)
    held = []
    while engine.scheduler.has_work():
        engine.step()
        held.append(engine.scheduler.pool.counts.referenced)
    assert held == [1, 0, 1, 0, 1, 2, 2, 2, 0, 1, 1, 1, 0]
    assert engine.outputs["0"] == continuation([1] * 21, "", 8)


def test_prompt_goes_on_from_the_cache_though_its_finished_chunks_were_evicted() -> None:
    chunked = KVCacheGroup(layers=(1,), window=8, chunked=True)
    engine = simulated(num_blocks=9, budget=8, groups=(KVCacheGroup(layers=(0,)), chunked))
    engine.add([1] * 16, max_tokens=1)
    engine.run_until_idle()
    engine.add([2] * 8, max_tokens=1)  # needs 4 blocks, and takes those of finished chunks first
    engine.run_until_idle()
    assert engine.scheduler.pool.counts.cached == 9
    engine.add([1] * 16 + [3] * 3, max_tokens=2)
    engine.run_until_idle()
    assert engine.scheduler.counters.cached_prompt_tokens == 16
    assert engine.outputs["2"] == continuation([1] * 16 + [3] * 3, "", 2)


def test_text_that_was_never_computed_is_no_hit_where_a_chunk_begins() -> None:
    """Though a model of chunked layers only could go on from there."""
    engine = simulated(groups=(KVCacheGroup(layers=(0,), window=8, chunked=True),))
    engine.add([1] * 12, max_tokens=1)
    engine.run_until_idle()
    engine.add([1] * 4 + [2] * 8, max_tokens=1)
    engine.run_until_idle()
    assert engine.scheduler.counters.cached_prompt_tokens == 4


def test_running_sequence_is_counted_at_its_window_and_not_at_its_prompts_chunks() -> None:
    """Counted as if chunks of 40 were to come, each would hold 10 blocks: no two would run."""
    window = KVCacheGroup(layers=(0,), window=5)
    engine = simulated(num_blocks=16, budget=40, groups=(window,), caching=False)
    engine.add([1] * 40, max_tokens=8)
    engine.step()
    assert engine.scheduler.pool.counts.referenced == 1
    engine.add([2] * 40, max_tokens=8)
    assert chunks(engine.scheduler) == {"0": 1, "1": 39}


def test_running_sequence_is_counted_at_its_chunk_and_not_at_its_text() -> None:
    """Counted as if it kept what it computed, the first would leave no room for the second."""
    chunk = KVCacheGroup(layers=(0,), window=8, chunked=True)
    engine = simulated(num_blocks=16, budget=40, groups=(chunk,), caching=False)
    engine.add([1] * 42, max_tokens=8)
    engine.step()
    engine.step()
    assert engine.scheduler.pool.counts.referenced == 1
    engine.add([2] * 42, max_tokens=8)
    assert chunks(engine.scheduler) == {"0": 1, "1": 39}


def test_drafts_take_only_what_all_others_leave_of_the_budget() -> None:
    engine = simulated(num_blocks=16, budget=8, drafts=4, caching=False)
    engine.add([0, 1] * 4, max_tokens=12)
    engine.step()
    sequence = engine.scheduler.running[0]
    sequence.token_ids[-1] = 0  # as if the text repeated itself
    engine.add([2] * 5, max_tokens=2)
    [first, second] = engine.scheduler.schedule()
    assert (first.num_own_tokens, first.draft_token_ids) == (1, (1, 0))
    assert (second.num_new_tokens, second.draft_token_ids) == (5, ())


def test_finish_of_an_unknown_request_does_nothing() -> None:
    assert build_scheduler().finish("never heard of", "abort") is None


def test_sequence_wastes_less_than_a_block_per_group() -> None:
    engine = simulated(num_blocks=60, budget=7, block_size=4)
    for length in (1, 5, 9, 14):
        engine.add([length] * length, max_tokens=6)
    while engine.scheduler.has_work():
        engine.step()
        for sequence in engine.scheduler.running:
            for table in sequence.block_tables:
                assert 0 <= len(table) * 4 - sequence.num_computed_tokens < 4
