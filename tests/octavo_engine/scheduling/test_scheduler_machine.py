"""Laws of the scheduler over random arrivals, lengths, aborts, pools and kinds of attention.

At every step: the token budget holds, the oldest progresses, each block is in one state, references
agree with tables, slots are distinct, and each new token attends to exactly its own text. In the end:
every admitted request ends with the tokens that it has alone, and no block stays referenced.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from octavo_engine.scheduling.kv_groups import KVCacheGroup
from tests.octavo_engine.scheduling.paged_memory import SimulatedEngine, build_scheduler, continuation

FULL = KVCacheGroup(layers=(0,))
CHUNKED = KVCacheGroup(layers=(1,), window=6, chunked=True)
GROUPS = st.sampled_from(
    [
        (FULL,),
        (KVCacheGroup(layers=(0,), window=6),),
        (FULL, KVCacheGroup(layers=(1,), window=6)),
        (KVCacheGroup(layers=(0,), window=3), KVCacheGroup(layers=(1,), window=9), FULL),
        (CHUNKED,),
        (KVCacheGroup(layers=(0,), window=8, chunked=True), FULL),
        (FULL, CHUNKED, KVCacheGroup(layers=(2,), window=6, chunked=True)),
    ]
)
TOKENS = st.integers(min_value=0, max_value=1)
PROMPTS = st.builds(lambda shared, own: [0] * shared + own, st.integers(1, 16), st.lists(TOKENS, max_size=8))
SALTS = st.sampled_from(["", "", "a"])
ADAPTERS = st.sampled_from(["", "", "a", "1:b"])


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, are aborted, and steps happen, in any order."""

    @initialize(
        num_blocks=st.integers(6, 30),
        block_size=st.integers(1, 4),
        budget=st.integers(1, 20),
        max_num_seqs=st.integers(1, 6),
        groups=GROUPS,
        caching=st.booleans(),
        drafts=st.sampled_from([0, 1, 5]),
        past=st.sampled_from([0, 0, 8]),
    )
    def build(
        self,
        *,
        num_blocks: int,
        block_size: int,
        budget: int,
        max_num_seqs: int,
        groups: tuple[KVCacheGroup, ...],
        caching: bool,
        drafts: int,
        past: int,
    ) -> None:
        self.scheduler = build_scheduler(
            num_blocks=num_blocks,
            block_size=block_size,
            budget=budget,
            max_num_seqs=max_num_seqs,
            groups=groups,
            caching=caching,
            drafts=drafts,
        )
        self.engine = SimulatedEngine(self.scheduler)
        self.capacity = self.scheduler.capacity_tokens(limit=200)
        self.asked: dict[str, tuple[list[int], str, str, int]] = {}
        self.aborted: set[str] = set()
        for _ in range(past):  # short outputs of the past let too much in: preemptions follow
            self.add([0], 1, "past", "")
        self.engine.run_until_idle()

    @rule(requests=st.lists(st.tuples(PROMPTS, st.integers(1, 16), SALTS, ADAPTERS), min_size=1, max_size=4))
    def add_some(self, requests: list[tuple[list[int], int, str, str]]) -> None:
        for request in requests:
            self.add(*request)

    def add(self, prompt: list[int], max_tokens: int, salt: str, adapter: str) -> None:
        if len(prompt) + max_tokens - 1 <= self.capacity:
            name = self.engine.add(prompt, max_tokens=max_tokens, salt=salt, adapter=adapter)
            self.asked[name] = (prompt, salt, adapter, max_tokens)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        in_flight = [s.request_id for s in (*self.scheduler.running, *self.scheduler.waiting)]
        if not in_flight:
            return
        name = data.draw(st.sampled_from(in_flight))
        assert self.scheduler.finish(name, "abort") is not None
        assert self.scheduler.finish(name, "abort") is None, "finish is not idempotent"
        self.aborted.add(name)
        self.scheduler.check_integrity()

    @rule(count=st.integers(1, 12))
    def run(self, count: int) -> None:
        for _ in range(count):
            if self.scheduler.has_work():
                self.engine.step()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.run_until_idle()
        event(f"preempted: {self.scheduler.counters.preemptions > 0}")
        event(f"right drafts: {self.scheduler.counters.accepted_draft_tokens > 0}")
        event(f"cache hits: {self.scheduler.counters.cached_prompt_tokens > 0}")
        counts = self.scheduler.pool.counts
        assert counts.referenced == 0 and counts.free + counts.cached == counts.total
        for name, (prompt, salt, adapter, max_tokens) in self.asked.items():
            expected = continuation(prompt, salt, max_tokens, adapter)
            output = self.engine.outputs[name]
            if name in self.aborted:
                assert output == expected[: len(output)]
            else:
                assert output == expected, f"request {name}"


@pytest.mark.parametrize("chunked", [False, True], ids=["sliding", "chunked"])
@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
def test_scheduler_keeps_its_laws_over_many_random_requests(
    caching: bool, drafts: int, chunked: bool
) -> None:
    random = Random(5)
    groups = (FULL, KVCacheGroup(layers=(1,), window=6, chunked=chunked))
    engine = SimulatedEngine(
        build_scheduler(num_blocks=40, budget=12, groups=groups, caching=caching, drafts=drafts)
    )
    asked: dict[str, tuple[list[int], int]] = {}
    aborted: set[str] = set()
    while len(asked) < 400 or engine.scheduler.has_work():
        if len(asked) < 400 and random.random() < 0.4:
            prompt = [0] * random.randint(1, 12) + [
                random.randint(0, 1) for _ in range(random.randint(0, 12))
            ]
            max_tokens = random.choice([1, 1, 2, 40])
            asked[engine.add(prompt, max_tokens=max_tokens)] = (prompt, max_tokens)
        in_flight = [*engine.scheduler.running, *engine.scheduler.waiting]
        if in_flight and random.random() < 0.05:
            victim = random.choice(in_flight).request_id
            engine.scheduler.finish(victim, "abort")
            aborted.add(victim)
        if engine.scheduler.has_work():
            engine.step()
    counters = engine.scheduler.counters
    assert counters.preemptions > 0
    assert (counters.cached_prompt_tokens > 0) == caching
    assert (counters.draft_tokens > counters.accepted_draft_tokens > 0) == (drafts > 0)
    assert engine.scheduler.pool.counts.referenced == 0
    for name in asked.keys() - aborted:
        prompt, max_tokens = asked[name]
        assert engine.outputs[name] == continuation(prompt, "", max_tokens)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
