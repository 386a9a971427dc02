"""One run of the real scheduler under a trace, measured at every step.

All requests are queued at the start, so that memory alone decides how many are admitted; the number
of sequences is not limited otherwise. A step is measured when its blocks are given and its tokens
are being computed: then a sequence uses the slots of its computed tokens and of those of this step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Final

from benchmarks.paging.trace import TracedRequest
from octavo_engine.scheduling.kv_groups import KVCacheGroup
from octavo_engine.scheduling.scheduler import ScheduledSequence, Scheduler, SchedulerLimits
from octavo_engine.scheduling.sequence import Sequence, StopConditions

END_TOKEN: Final = -1
"""What the fake sampler draws last; no other token is negative."""
HASH_ROOT: Final = b"paging benchmark"
"""Fixed, so that a run can be repeated exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a run is given, whatever the memory is managed by."""

    max_model_len: int
    max_tokens: int
    """Limit that every client sets; the scheduler does not know where outputs really end."""
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """What a way to manage memory made of it; means are over the steps in which requests waited."""

    num_steps: int
    mean_admitted: float
    max_admitted: int
    filled_ratio: float
    """Share of all slots that hold a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedMeasurement:
    """Memory use, and what only paging has."""

    memory: MemoryUse
    mean_unused_slots: float
    """Per sequence, KV-cache group and step, over all steps."""
    max_unused_slots: int
    preemptions: int
    recomputed_tokens: int
    generated_tokens: int


class MemoryLog:
    """Adds up, step by step, how many sequences are admitted and how many slots are filled."""

    def __init__(self, *, num_slots: int) -> None:
        self._num_slots = num_slots
        self._num_steps = self._num_loaded_steps = self._admitted = self._filled = self._max_admitted = 0

    def record(self, *, num_admitted: int, filled_slots: int, requests_wait: bool) -> None:
        """Note one step."""
        self._num_steps += 1
        self._max_admitted = max(self._max_admitted, num_admitted)
        if requests_wait:
            self._num_loaded_steps += 1
            self._admitted += num_admitted
            self._filled += filled_slots

    def summary(self) -> MemoryUse:
        """The means; a run in which no request ever waited has none to show."""
        steps = self._num_loaded_steps
        return MemoryUse(
            num_steps=self._num_steps,
            mean_admitted=round(self._admitted / steps, 4) if steps else float(self._max_admitted),
            max_admitted=self._max_admitted,
            filled_ratio=round(self._filled / (steps * self._num_slots), 4) if steps else 0.0,
        )


class UnusedSlots:
    """Adds up the slots that sequences hold and do not use."""

    def __init__(self, *, block_size: int) -> None:
        self._block_size = block_size
        self._sum = self._count = 0
        self.max = 0

    def record(self, sequence: Sequence, *, num_tokens: int) -> None:
        """Note one sequence whose tables were grown for `num_tokens`.

        A window that has slid leaves null entries at the front; what is unused is at the end.
        """
        for table in sequence.block_tables:
            unused = len(table) * self._block_size - num_tokens
            assert unused >= 0, (
                f"sequence {sequence.request_id} has {num_tokens} tokens and {len(table)} blocks"
            )
            self._sum += unused
            self._count += 1
            self.max = max(self.max, unused)

    @property
    def mean(self) -> float:
        """Over all that was noted."""
        return round(self._sum / self._count, 4)


def run_paged(
    requests: SequenceOf[TracedRequest],
    *,
    conditions: Conditions,
    groups: SequenceOf[KVCacheGroup],
    pool_slots: int,
    block_size: int,
    on_finished: Callable[[int], object],
) -> PagedMeasurement:
    """Serve all requests; `on_finished` hears how many ended in each step."""
    scheduler = _scheduler(len(requests), conditions, groups, pool_slots // block_size, block_size)
    for order, request in enumerate(requests):
        scheduler.add(_sequence(order, request, conditions))
    memory, unused = MemoryLog(num_slots=pool_slots), UnusedSlots(block_size=block_size)
    while scheduler.has_work():
        scheduled = scheduler.schedule()
        _measure(scheduler, scheduled, memory, unused)
        updates = scheduler.record(scheduled, dict(_draw(scheduled, requests)))
        on_finished(sum(update.finish_reason is not None for update in updates))
    scheduler.check_integrity()
    return PagedMeasurement(
        memory=memory.summary(),
        mean_unused_slots=unused.mean,
        max_unused_slots=unused.max,
        preemptions=scheduler.counters.preemptions,
        recomputed_tokens=scheduler.counters.recomputed_tokens,
        generated_tokens=scheduler.counters.generated_tokens,
    )


def _scheduler(
    num_requests: int,
    conditions: Conditions,
    groups: SequenceOf[KVCacheGroup],
    num_blocks: int,
    block_size: int,
) -> Scheduler:
    limits = SchedulerLimits(
        max_num_seqs=num_requests,
        max_num_batched_tokens=conditions.max_num_batched_tokens,
        block_size=block_size,
        num_blocks=num_blocks,
    )
    return Scheduler(limits=limits, groups=groups, hash_root=HASH_ROOT)


def _sequence(order: int, request: TracedRequest, conditions: Conditions) -> Sequence:
    """Its own token throughout: the trace holds no text, so no two requests are made to share a prefix."""
    return Sequence(
        request_id=str(order),
        order=order,
        token_ids=[order] * request.num_prompt_tokens,
        num_prompt_tokens=request.num_prompt_tokens,
        stop=StopConditions(max_tokens=conditions.max_tokens, stop_token_ids=frozenset({END_TOKEN})),
    )


def _measure(
    scheduler: Scheduler, scheduled: SequenceOf[ScheduledSequence], memory: MemoryLog, unused: UnusedSlots
) -> None:
    new_tokens = {item.sequence.order: item.num_new_tokens for item in scheduled}
    for sequence in scheduler.running:
        num_tokens = sequence.num_computed_tokens + new_tokens.get(sequence.order, 0)
        unused.record(sequence, num_tokens=num_tokens)
    memory.record(
        num_admitted=len(scheduler.running),
        filled_slots=_filled_slots(scheduler, new_tokens),
        requests_wait=bool(scheduler.waiting),
    )


def _filled_slots(scheduler: Scheduler, new_tokens: dict[int, int]) -> int:
    """Slots of all groups that hold a token; a slid window's first block still holds whole blocks of them."""
    size = scheduler.limits.block_size
    return sum(
        sequence.num_computed_tokens + new_tokens.get(sequence.order, 0) - released * size
        for sequence in scheduler.running
        for released in sequence.num_released_blocks
    )


def _draw(
    scheduled: SequenceOf[ScheduledSequence], requests: SequenceOf[TracedRequest]
) -> Iterator[tuple[str, tuple[int]]]:
    """The fake sampler: any token, and the end token where the trace's output ends."""
    for item in scheduled:
        if item.samples:
            sequence = item.sequence
            ends = sequence.num_output_tokens + 1 == requests[sequence.order].num_output_tokens
            yield sequence.request_id, (END_TOKEN if ends else sequence.order,)
