"""Where each token of a step comes from and goes to, as plain lists.

Rows are the step's tokens. Sequences that generate (one token each) come first, so that kernels can
take them as one batch; longer chunks follow, one span each, and so do tokens with drafts behind them.
In both parts the rows of one adapter lie together.

    token 17 of a sequence with block table [7, 3], block size 16:
      block 17 // 16 = 1 → id 3 · offset 17 % 16 = 1 → slot 3 * 16 + 1 = 49
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from octavo_engine.scheduling.kv_groups import KVCacheGroup
from octavo_engine.scheduling.scheduler import ScheduledSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLayout:
    """The new tokens of one sequence, seen by one KV-cache group."""

    start: int
    """Row of its first new token."""
    num_new_tokens: int
    context_len: int
    """Tokens from `first_position` to the last new one, both included."""
    first_position: int
    """Position of the first slot of the first block in `block_ids`; above 0 where a window moved on."""
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """One KV-cache group's tables and slots in a step."""

    window: int | None
    chunked: bool = False
    """Whether windows stand side by side, as of `KVCacheGroup`."""
    slot_mapping: list[int]
    """For each row the slot that its key and value are written to."""
    spans: tuple[SpanLayout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLayout:
    """All index arithmetic of one step."""

    token_ids: list[int]
    positions: list[int]
    num_decodes: int
    """Leading rows that are one token of one sequence each."""
    sample_rows: list[int]
    """Rows whose scores are needed, in the order of `sampled`."""
    sampled: tuple[ScheduledSequence, ...]
    """Each with its `num_sample_rows` rows."""
    groups: tuple[GroupLayout, ...]
    first_rows: dict[str, int] = field(default_factory=dict)
    """By request id, the row of its first new token."""
    adapter_rows: tuple[tuple[str, slice], ...] = ()
    """Which rows are computed with which adapter; rows of the model as it is are in none."""


def build_batch_layout(
    scheduled: SequenceOf[ScheduledSequence], *, groups: SequenceOf[KVCacheGroup], block_size: int
) -> BatchLayout:
    """Lay out the rows of a step."""
    ordered = sorted(scheduled, key=lambda item: (item.num_new_tokens > 1, item.sequence.adapter))
    token_ids: list[int] = []
    positions: list[int] = []
    starts: list[int] = []
    for item in ordered:
        first = item.sequence.num_computed_tokens
        stop = first + item.num_new_tokens
        starts.append(len(token_ids))
        token_ids.extend(item.sequence.token_ids[first:stop])
        token_ids.extend(item.draft_token_ids)
        positions.extend(range(first, stop))
    stops = [start + item.num_new_tokens for start, item in zip(starts, ordered, strict=True)]
    return BatchLayout(
        token_ids=token_ids,
        positions=positions,
        num_decodes=sum(item.num_new_tokens == 1 for item in ordered),
        sample_rows=[
            row
            for stop, item in zip(stops, ordered, strict=True)
            for row in range(stop - item.num_sample_rows, stop)
        ],
        sampled=tuple(item for item in ordered if item.samples),
        groups=tuple(
            _group_layout(index, group, ordered, starts, block_size) for index, group in enumerate(groups)
        ),
        first_rows={item.sequence.request_id: start for item, start in zip(ordered, starts, strict=True)},
        adapter_rows=_adapter_rows(ordered, starts),
    )


def _adapter_rows(
    ordered: SequenceOf[ScheduledSequence], starts: SequenceOf[int]
) -> tuple[tuple[str, slice], ...]:
    spans: list[tuple[str, slice]] = []
    for item, start in zip(ordered, starts, strict=True):
        adapter, stop = item.sequence.adapter, start + item.num_new_tokens
        if not adapter:
            continue
        if spans and spans[-1][0] == adapter and spans[-1][1].stop == start:
            start = spans.pop()[1].start
        spans.append((adapter, slice(start, stop)))
    return tuple(spans)


def _group_layout(
    index: int,
    group: KVCacheGroup,
    ordered: SequenceOf[ScheduledSequence],
    starts: SequenceOf[int],
    block_size: int,
) -> GroupLayout:
    slots: list[int] = []
    spans: list[SpanLayout] = []
    for item, start in zip(ordered, starts, strict=True):
        table, computed = item.sequence.block_tables[index], item.sequence.num_computed_tokens
        stop = computed + item.num_new_tokens
        slots.extend(_slots(table, computed, stop, block_size))
        first_block = group.first_needed_block(computed, block_size)
        spans.append(
            SpanLayout(
                start=start,
                num_new_tokens=item.num_new_tokens,
                context_len=stop - first_block * block_size,
                first_position=first_block * block_size,
                block_ids=tuple(table[first_block : -(-stop // block_size)]),
            )
        )
    return GroupLayout(window=group.window, chunked=group.chunked, slot_mapping=slots, spans=tuple(spans))


def _slots(table: SequenceOf[int], first: int, stop: int, block_size: int) -> list[int]:
    """Slots of the positions `first` to `stop - 1`.

    >>> _slots([7, 3], 15, 18, 16)
    [127, 48, 49]
    """
    return [table[p // block_size] * block_size + p % block_size for p in range(first, stop)]
