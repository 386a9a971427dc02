"""A KV cache of plain dicts: each slot remembers which text it was computed for.

The "key and value" of a position is the text up to it, so that a wrong block, a stale slot, a cache
hit on another text or a window that gave back too much is seen at once. The "model" continues a text
by a function of the whole text.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from hashlib import blake2b

from octavo_engine.scheduling.batch_layout import BatchLayout, build_batch_layout
from octavo_engine.scheduling.kv_groups import KVCacheGroup
from octavo_engine.scheduling.scheduler import (
    DRAFTING_ROWS,
    ScheduledSequence,
    Scheduler,
    SchedulerLimits,
    SequenceUpdate,
)
from octavo_engine.scheduling.sequence import Sequence, StopConditions

VOCABULARY = 4
"""Few tokens, so that texts often share prefixes."""


def next_token(text: SequenceOf[int], salt: str, adapter: str = "") -> int:
    """The continuation of a text."""
    digest = blake2b(repr((tuple(text), salt, adapter)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % VOCABULARY


def first_attended(position: int, window: int | None, *, chunked: bool = False) -> int:
    """By definition: where what the token at `position` attends to begins."""
    if window is None:
        return 0
    return position - position % window if chunked else max(0, position - window + 1)


def continuation(prompt: SequenceOf[int], salt: str, count: int, adapter: str = "") -> list[int]:
    """What an undisturbed sequence generates."""
    text = list(prompt)
    for _ in range(count):
        text.append(next_token(text, salt, adapter))
    return text[len(prompt) :]


def text_with_drafts(item: ScheduledSequence) -> list[int]:
    """What the sequence would be if all its drafts were right."""
    return [*item.sequence.token_ids, *item.draft_token_ids]


def draw(item: ScheduledSequence) -> list[int]:
    """The next token, and those after it while the drafts are right."""
    drawn: list[int] = []
    for draft in (*item.draft_token_ids, None):
        sequence = item.sequence
        drawn.append(next_token([*sequence.token_ids, *drawn], sequence.salt, sequence.adapter))
        if drawn[-1] != draft:
            break
    return drawn


def build_scheduler(
    *,
    num_blocks: int = 16,
    block_size: int = 4,
    budget: int = 16,
    max_num_seqs: int = 8,
    groups: SequenceOf[KVCacheGroup] = (KVCacheGroup(layers=(0,)),),
    caching: bool = True,
    drafts: int = 0,
) -> Scheduler:
    """A small scheduler."""
    limits = SchedulerLimits(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        block_size=block_size,
        num_blocks=num_blocks,
        enable_prefix_caching=caching,
        max_draft_tokens=drafts,
    )
    return Scheduler(limits=limits, groups=groups, hash_root=b"root")


@dataclass
class SimulatedEngine:
    """A scheduler driven over the simulated cache; checks every law at every step."""

    scheduler: Scheduler
    memory: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    outputs: dict[str, list[int]] = field(default_factory=dict)
    num_added: int = 0

    def add(self, prompt: SequenceOf[int], *, max_tokens: int, salt: str = "", adapter: str = "") -> str:
        """Queue a prompt; the id is its number."""
        name = str(self.num_added)
        self.scheduler.add(
            Sequence(
                request_id=name,
                order=self.num_added,
                token_ids=list(prompt),
                num_prompt_tokens=len(prompt),
                stop=StopConditions(max_tokens=max_tokens),
                salt=salt,
                adapter=adapter,
            )
        )
        self.num_added += 1
        self.outputs[name] = []
        return name

    def step(self) -> list[SequenceUpdate]:
        """Schedule, compute, record."""
        scheduled = self.scheduler.schedule()
        self._check_schedule(scheduled)
        layout = build_batch_layout(
            scheduled, groups=self.scheduler.groups, block_size=self.scheduler.limits.block_size
        )
        self._compute(scheduled, layout)
        drawn = {item.sequence.request_id: draw(item) for item in scheduled if item.samples}
        updates = self.scheduler.record(scheduled, drawn)
        for update in updates:
            self.outputs[update.sequence.request_id].extend(update.token_ids)
        self.scheduler.check_integrity()
        self._check_waste()
        return updates

    def run_until_idle(self, *, max_steps: int = 10_000) -> int:
        """Step to the end; the number of steps."""
        for step in range(max_steps):
            if not self.scheduler.has_work():
                return step
            self.step()
        raise AssertionError(f"still busy after {max_steps} steps")

    def _check_schedule(self, scheduled: SequenceOf[ScheduledSequence]) -> None:
        tokens = sum(item.num_new_tokens for item in scheduled)
        assert tokens <= self.scheduler.limits.max_num_batched_tokens, f"{tokens} tokens in a step"
        assert len(self.scheduler.running) <= self.scheduler.limits.max_num_seqs
        assert all(item.num_new_tokens > 0 for item in scheduled)
        if any(item.draft_token_ids for item in scheduled):
            assert tokens <= DRAFTING_ROWS, f"drafts make a step of {tokens} rows"
        in_flight = [*self.scheduler.running, *self.scheduler.waiting]
        if in_flight:
            oldest = min(in_flight, key=lambda sequence: sequence.order)
            assert oldest in [item.sequence for item in scheduled], "the oldest sequence does not progress"

    def _check_waste(self) -> None:
        """Tables end with the block of the last computed token: also wrong drafts left none behind."""
        size = self.scheduler.limits.block_size
        for sequence in self.scheduler.running:
            for table in sequence.block_tables:
                assert len(table) == -(-sequence.num_computed_tokens // size), (
                    f"{sequence.request_id}: {table}"
                )

    def _compute(self, scheduled: SequenceOf[ScheduledSequence], layout: BatchLayout) -> None:
        """Write the step's slots, then look at all that each new token attends to."""
        by_size = sorted(scheduled, key=lambda item: (item.num_new_tokens > 1, item.sequence.adapter))
        self._check_adapter_rows(by_size, layout)
        written: set[int] = set()
        for group_index, group in enumerate(layout.groups):
            slots = group.slot_mapping
            assert len(set(slots)) == len(slots) == len(layout.token_ids), "slots of a step are not distinct"
            assert not written & set(slots), "two groups write one slot"
            written |= set(slots)
            for span, item in zip(group.spans, by_size, strict=True):
                text, first = text_with_drafts(item), item.sequence.num_computed_tokens
                for offset in range(span.num_new_tokens):
                    self.memory[(group_index, slots[span.start + offset])] = self._content(
                        group_index, item, text[: first + offset + 1]
                    )
        for group_index, group in enumerate(layout.groups):
            for span, item in zip(group.spans, by_size, strict=True):
                size = self.scheduler.limits.block_size
                last = item.sequence.num_computed_tokens + item.num_new_tokens - 1
                assert last - span.first_position + 1 == span.context_len
                first = first_attended(item.sequence.num_computed_tokens, group.window, chunked=group.chunked)
                for position in range(first, last + 1):
                    index = position - span.first_position
                    slot = span.block_ids[index // size] * size + index % size
                    expected = self._content(group_index, item, text_with_drafts(item)[: position + 1])
                    found = self.memory.get((group_index, slot))
                    assert found == expected, f"{item.sequence.request_id}: position {position} is {found}"

    def _check_adapter_rows(self, ordered: SequenceOf[ScheduledSequence], layout: BatchLayout) -> None:
        """Each row is one adapter's exactly once, and the model's own are nobody's."""
        expected = [item.sequence.adapter for item in ordered for _ in range(item.num_new_tokens)]
        found = [""] * len(layout.token_ids)
        for adapter, rows in layout.adapter_rows:
            assert set(found[rows]) == {""}, f"rows {rows} have two adapters"
            found[rows] = [adapter] * (rows.stop - rows.start)
        assert found == expected
        assert len(layout.adapter_rows) <= 2 * len(set(expected) - {""}), "rows of an adapter lie apart"

    def _content(self, group_index: int, item: ScheduledSequence, text: SequenceOf[int]) -> tuple[int, ...]:
        return (group_index, hash((item.sequence.salt, item.sequence.adapter)), *text)
