"""Which sequences run and which tokens each step computes.

Every sequence's computed tokens chase its total under one token budget per step; chunked prefill,
cache hits and recomputation after a preemption are all the same case. Order of arrival decides
everything: the oldest always progresses, and only the newest running sequence is ever preempted.
A sequence starts only with what the older ones leave of the budget, so that those which generate
are older than the one whose prompt is being computed, and never wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from octavo_engine.scheduling.admission import (
    Forecast,
    OutputHistory,
    admission_limit_blocks,
    predicted_peak_blocks,
)
from octavo_engine.scheduling.block_pool import NULL_BLOCK, BlockPool
from octavo_engine.scheduling.counters import SchedulerCounters
from octavo_engine.scheduling.kv_groups import KVCacheGroup, max_sequence_tokens
from octavo_engine.scheduling.prefix_cache import PrefixHasher
from octavo_engine.scheduling.sequence import FinishReason, Sequence
from octavo_engine.scheduling.sequence_blocks import CacheHit, SequenceBlocks

DRAFTING_ROWS: Final = 32
"""Rows of a step up to which drafts are added: about where its time begins to grow with its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What bounds a step and the pool."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    enable_prefix_caching: bool = True
    max_draft_tokens: int = 0
    """Tokens that a generating sequence may be guessed ahead in a step; 0: no speculation."""


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The next `num_new_tokens` of one sequence; the last of them are drafts, if it has any."""

    sequence: Sequence
    num_new_tokens: int
    samples: bool
    """Whether all its tokens are computed then, so that a new one is drawn."""
    draft_token_ids: tuple[int, ...] = ()
    """Guesses at the tokens to be drawn: computed with the rest, kept as far as they are right."""

    @property
    def num_own_tokens(self) -> int:
        """New tokens that are the sequence's, and no guesses."""
        return self.num_new_tokens - len(self.draft_token_ids)

    @property
    def num_sample_rows(self) -> int:
        """Rows whose scores are needed: of its last token, and of each draft."""
        return 1 + len(self.draft_token_ids) if self.samples else 0


@dataclass(frozen=True, slots=True)
class SequenceUpdate:
    """What a recorded step did to one sequence."""

    sequence: Sequence
    token_ids: tuple[int, ...]
    """One, and the drafts before it that were right."""
    finish_reason: FinishReason | None


class Scheduler:
    """Owns the waiting and the running sequences and all their blocks."""

    def __init__(
        self, *, limits: SchedulerLimits, groups: SequenceOf[KVCacheGroup], hash_root: bytes
    ) -> None:
        self.limits = limits
        self.pool = BlockPool(num_blocks=limits.num_blocks)
        self.counters = SchedulerCounters()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.groups = tuple(groups)
        self._by_id: dict[str, Sequence] = {}
        self._history = OutputHistory()
        self._blocks = SequenceBlocks(
            pool=self.pool,
            groups=self.groups,
            block_size=limits.block_size,
            max_chunk=limits.max_num_batched_tokens,
            hasher=PrefixHasher(block_size=limits.block_size, root=hash_root),
            enable_prefix_caching=limits.enable_prefix_caching,
        )

    # Requests -----------------------------------------------------------------------------------

    def capacity_tokens(self, *, limit: int) -> int:
        """Longest sequence, at most `limit`, that the whole pool can hold."""
        return max_sequence_tokens(
            self.groups,
            num_blocks=self.limits.num_blocks,
            block_size=self.limits.block_size,
            max_chunk=self.limits.max_num_batched_tokens,
            limit=limit,
        )

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; the caller has made sure that the pool can hold it."""
        assert sequence.request_id not in self._by_id, f"{sequence.request_id} is in flight"
        self._by_id[sequence.request_id] = sequence
        self.waiting.append(sequence)

    def get(self, request_id: str) -> Sequence | None:
        """The sequence in flight under this id."""
        return self._by_id.get(request_id)

    def finish(self, request_id: str, reason: FinishReason) -> Sequence | None:
        """End a sequence, whatever its state; None if it has ended already. Every end comes here."""
        sequence = self._by_id.pop(request_id, None)
        if sequence is None:
            return None
        if sequence.state == "running":
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._blocks.free(sequence)
        sequence.state = "finished"
        sequence.finish_reason = reason
        if reason in ("stop", "length"):
            self._history.record(sequence.num_output_tokens)
            self.counters.note_completion(output_tokens=sequence.num_output_tokens)
        return sequence

    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._by_id)

    # One step -----------------------------------------------------------------------------------

    def schedule(self) -> tuple[ScheduledSequence, ...]:
        """Choose the tokens of the next step and give them blocks."""
        scheduled: list[ScheduledSequence] = []
        budget = self.limits.max_num_batched_tokens
        preemptions_before = self.counters.preemptions
        for sequence in tuple(self.running):
            if budget == 0 or sequence.state != "running":
                break  # preempted ones are the newest, so that none follows which is not
            chunk = min(budget, sequence.num_uncomputed_tokens)
            if self._make_room(sequence, chunk):
                scheduled.append(_scheduled(sequence, chunk))
                budget -= chunk
        if self.counters.preemptions == preemptions_before:
            budget = self._admit(scheduled, budget)
            self._add_drafts(scheduled, budget)
        return tuple(scheduled)

    def _make_room(self, sequence: Sequence, chunk: int) -> bool:
        """Give the chunk its blocks, preempting the newest; False if the sequence itself had to go."""
        while not self._blocks.grow(sequence, sequence.num_computed_tokens + chunk):
            newest = self.running[-1]
            self._preempt(newest)
            if newest is sequence:
                return False
        return True

    def preempt_newest(self) -> None:
        """Preempt the newest running sequence though there may be room (tests of equality do)."""
        if self.running:
            self._preempt(self.running[-1])

    def _preempt(self, sequence: Sequence) -> None:
        """Send the newest running sequence back to the head of the queue; its hashes stay."""
        assert self.running[-1] is sequence, f"{sequence.request_id} is not the newest"
        self.running.pop()
        self._blocks.free(sequence)
        sequence.num_computed_tokens = 0
        sequence.state = "waiting"
        sequence.num_preemptions += 1
        self.waiting.appendleft(sequence)
        self.counters.preemptions += 1

    def _add_drafts(self, scheduled: list[ScheduledSequence], budget: int) -> None:
        """Let sequences that generate get several tokens ahead, where that takes nothing from others.

        All have their tokens and blocks already; drafts get what is left, oldest sequence first, and
        give back the blocks that they do not keep. Nobody is preempted for them.
        """
        room = min(budget, DRAFTING_ROWS - sum(item.num_new_tokens for item in scheduled))
        for index, item in enumerate(scheduled):
            sequence = item.sequence
            if not item.samples or sequence.num_output_tokens == 0:
                continue
            drafts = sequence.draft(most=min(room, self.limits.max_draft_tokens))
            if drafts and self._blocks.grow(sequence, sequence.num_tokens + len(drafts)):
                num_new_tokens = item.num_new_tokens + len(drafts)
                scheduled[index] = replace(item, num_new_tokens=num_new_tokens, draft_token_ids=drafts)
                self.counters.draft_tokens += len(drafts)
                room -= len(drafts)

    # Admission ----------------------------------------------------------------------------------

    def _admit(self, scheduled: list[ScheduledSequence], budget: int) -> int:
        """Start waiting sequences, oldest first and never one past another, while there is room.

        Gives what is left of the budget.
        """
        pending = self._pending_hashes(scheduled)
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._blocks.find_hit(sequence)
            if hit.next_hash is not None and hit.next_hash in pending:
                break  # its next block is being computed right now: next step it is a hit
            if not self._can_admit(sequence, hit):
                break
            chunk = min(budget, sequence.num_tokens - hit.num_tokens)
            self._start(sequence, hit, chunk)
            scheduled.append(_scheduled(sequence, chunk))
            pending |= self._blocks.hashes_touched_by(sequence, chunk)
            budget -= chunk
        return budget

    def _pending_hashes(self, scheduled: SequenceOf[ScheduledSequence]) -> set[bytes]:
        pending: set[bytes] = set()
        if self.waiting:
            for item in scheduled:
                pending |= self._blocks.hashes_touched_by(item.sequence, item.num_new_tokens)
        return pending

    def _can_admit(self, sequence: Sequence, hit: CacheHit) -> bool:
        """Whether all its present tokens fit now, and the predicted peak stays inside the pool."""
        needed = self._blocks.blocks_to_admit(sequence, hit)
        if needed > self.pool.num_available:
            return False
        if not self.running:
            return True
        peak = predicted_peak_blocks(self._forecasts(sequence, hit), block_size=self.limits.block_size)
        return peak <= admission_limit_blocks(self.limits.num_blocks)

    def _forecasts(self, candidate: Sequence, hit: CacheHit) -> list[Forecast]:
        """Of all that would run. Who ends last comes first, so that blocks it shares are counted with it."""
        forecasts: list[Forecast] = []
        seen: set[int] = set()
        growing = [(self._expected_growth(sequence), sequence) for sequence in (*self.running, candidate)]
        for growth, sequence in sorted(growing, key=itemgetter(0), reverse=True):
            own_hit = hit if sequence is candidate else None
            forecasts += self._blocks.forecast(sequence, growth=growth, seen=seen, hit=own_hit)
        return forecasts

    def _expected_growth(self, sequence: Sequence) -> int:
        """Output tokens that are still expected of it, at least one."""
        generated = sequence.num_output_tokens
        expected = self._history.expected_length(num_generated=generated, max_tokens=sequence.stop.max_tokens)
        return max(1, expected - generated)

    def _start(self, sequence: Sequence, hit: CacheHit, chunk: int) -> None:
        self.waiting.popleft()
        self._blocks.attach(sequence, hit)
        grown = self._blocks.grow(sequence, sequence.num_computed_tokens + chunk)
        assert grown, f"{sequence.request_id} was admitted without room for its first chunk"
        sequence.state = "running"
        self.running.append(sequence)
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = hit.num_tokens
            self.counters.note_admission(prompt_tokens=sequence.num_prompt_tokens, cached=hit.num_tokens)

    # Results ------------------------------------------------------------------------------------

    def record(
        self, scheduled: SequenceOf[ScheduledSequence], drawn: Mapping[str, SequenceOf[int]]
    ) -> list[SequenceUpdate]:
        """Note what a step computed and drew; sequences that reached an end are finished.

        `drawn` has for each sequence that samples the drafts that were right, and one token more.
        """
        updates: list[SequenceUpdate] = []
        for item in scheduled:
            sequence = item.sequence
            if sequence.state != "running":
                continue
            tokens = tuple(drawn[sequence.request_id]) if item.samples else ()
            accepted = tokens[:-1]
            assert accepted == item.draft_token_ids[: len(accepted)], f"{accepted} were not drafted"
            sequence.token_ids.extend(accepted)
            self._advance(sequence, item.num_own_tokens + len(accepted))
            if item.draft_token_ids:
                self._blocks.trim(sequence)
            if tokens:
                updates.append(self._append(sequence, tokens))
        return updates

    def _advance(self, sequence: Sequence, num_new_tokens: int) -> None:
        before = sequence.num_computed_tokens
        sequence.num_computed_tokens += num_new_tokens
        repeated = min(sequence.num_computed_tokens, sequence.max_computed_tokens) - before
        self.counters.recomputed_tokens += max(0, repeated)
        sequence.max_computed_tokens = max(sequence.max_computed_tokens, sequence.num_computed_tokens)
        self._blocks.register_full(sequence)
        self._blocks.release_passed(sequence)

    def _append(self, sequence: Sequence, tokens: tuple[int, ...]) -> SequenceUpdate:
        """Note drawn tokens, of which all but the last are in the text already and ended nothing."""
        sequence.token_ids.append(tokens[-1])
        self.counters.generated_tokens += len(tokens)
        self.counters.accepted_draft_tokens += len(tokens) - 1
        reason = sequence.end_after(tokens[-1])
        if reason is not None:
            self.finish(sequence.request_id, reason)
        return SequenceUpdate(sequence, tokens, reason)

    def check_integrity(self) -> None:
        """Assert that blocks, tables and queues agree; costs a pass over all blocks."""
        self.pool.check_integrity()
        references: dict[int, int] = {}
        for sequence in self.running:
            for table in sequence.block_tables:
                for block_id in table:
                    references[block_id] = references.get(block_id, 0) + 1
        references.pop(NULL_BLOCK, None)
        for block_id in range(1, self.limits.num_blocks + 1):
            held, counted = references.get(block_id, 0), self.pool.ref_count(block_id)
            assert held == counted, f"block {block_id}: {held} tables name it, {counted} references counted"
        assert all(not sequence.block_tables for sequence in self.waiting), "a waiting sequence holds blocks"
        orders = [sequence.order for sequence in (*self.running, *self.waiting)]
        assert orders == sorted(orders), f"order of arrival broken: {orders}"
        assert len(orders) == len(self._by_id), "a sequence is in neither queue"


def _scheduled(sequence: Sequence, chunk: int) -> ScheduledSequence:
    return ScheduledSequence(sequence, chunk, samples=chunk == sequence.num_uncomputed_tokens)
