"""The same trace with each sequence's memory reserved as a whole when it is admitted.

This is what paging replaces. The comparison is kind to it: the free memory counts as one piece
however it is scattered, and no alignment is added. Steps share the same token budget in the same
order of arrival as the engine's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from benchmarks.paging.paged_run import MemoryLog, MemoryUse
from benchmarks.paging.trace import TracedRequest
from octavo_engine.scheduling.kv_groups import KVCacheGroup


@dataclass(slots=True)
class Reservation:
    """One admitted request, and how far its memory is filled."""

    request: TracedRequest
    num_slots: int
    num_computed_tokens: int = 0
    num_output_tokens: int = 0

    @property
    def num_uncomputed_tokens(self) -> int:
        """1 while it generates, more while its prompt is being computed."""
        return self.request.num_prompt_tokens + self.num_output_tokens - self.num_computed_tokens

    def compute(self, num_tokens: int) -> None:
        """Fill slots; the last token of all yields a new one."""
        self.num_computed_tokens += num_tokens
        if self.num_uncomputed_tokens == 0:
            self.num_output_tokens += 1

    @property
    def is_finished(self) -> bool:
        """Whether the trace's output is complete."""
        return self.num_output_tokens == self.request.num_output_tokens


def run_contiguous(
    requests: SequenceOf[TracedRequest],
    *,
    reserved_tokens: Callable[[TracedRequest], int],
    groups: SequenceOf[KVCacheGroup],
    num_slots: int,
    max_num_batched_tokens: int,
) -> MemoryUse:
    """Serve all requests, each with slots for `reserved_tokens` of it; it must fit by itself."""
    waiting = deque(Reservation(request, slots_for(groups, reserved_tokens(request))) for request in requests)
    assert all(item.num_slots <= num_slots for item in waiting), (
        "a request larger than all memory never starts"
    )
    running: list[Reservation] = []
    free, log = num_slots, MemoryLog(num_slots=num_slots)
    while waiting or running:
        budget = max_num_batched_tokens
        for item in running:
            budget -= _compute(item, budget)
        while waiting and budget > 0 and waiting[0].num_slots <= free:
            item = waiting.popleft()
            running.append(item)
            free -= item.num_slots
            budget -= _compute(item, budget)
        filled = sum(slots_for(groups, item.num_computed_tokens) for item in running)
        log.record(num_admitted=len(running), filled_slots=filled, requests_wait=bool(waiting))
        free += sum(item.num_slots for item in running if item.is_finished)
        running = [item for item in running if not item.is_finished]
    return log.summary()


def slots_for(groups: SequenceOf[KVCacheGroup], num_tokens: int) -> int:
    """Slots for so many tokens; a window needs no more than its own length (a ring, again kind).

    >>> slots_for((KVCacheGroup(layers=(0,)), KVCacheGroup(layers=(1,), window=512)), 8192)
    8704
    """
    return sum(min(num_tokens, group.window or num_tokens) for group in groups)


def _compute(item: Reservation, budget: int) -> int:
    chunk = min(budget, item.num_uncomputed_tokens)
    if chunk > 0:
        item.compute(chunk)
    return chunk
