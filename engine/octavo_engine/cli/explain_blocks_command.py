"""`octavo-engine explain-blocks`: what paging does with sequences of given lengths, on the real block pool.

It allocates as the engine does, sequence by sequence, from the scheduler's own pool and tables, and
reads the answer off them: no model, no torch, no second arithmetic that could tell another story.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from typing import Final

from octavo.errors import InvalidSpec
from octavo_engine.scheduling.block_pool import BlockPool
from octavo_engine.scheduling.kv_groups import KVCacheGroup
from octavo_engine.scheduling.prefix_cache import PrefixHasher
from octavo_engine.scheduling.sequence import Sequence, StopConditions
from octavo_engine.scheduling.sequence_blocks import SequenceBlocks

NAME: Final = "explain-blocks"
SUMMARY: Final = "Show the blocks, the block table and the unused slots of sequences of given lengths."

DEFAULT_BLOCK_SIZE: Final = 16
MAX_BLOCKS: Final = 100_000
"""An explanation longer than that helps nobody, and the pool would take seconds to make."""
MAX_DIGITS: Final = 9
"""A typing error with more digits is refused before it is computed with."""
MAX_IDS_SHOWN: Final = 8
"""Longer block tables are shortened in the table; JSON has them whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceExplanation:
    """One sequence's share of the pool."""

    length: int
    num_blocks: int
    block_table: tuple[int, ...]
    capacity_tokens: int
    unused_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All sequences together."""

    length: int
    num_blocks: int
    capacity_tokens: int
    unused_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the command prints."""

    block_size: int
    max_unused_slots_per_sequence: int
    sequences: tuple[SequenceExplanation, ...]
    totals: Totals


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Lengths are the one thing that it must be told."""
    parser.add_argument(
        "--lengths",
        required=True,
        type=parse_lengths,
        metavar="TOKENS,...",
        help="tokens of each sequence, prompt and output together, as 35,17,64",
    )
    parser.add_argument(
        "--block-size",
        type=parse_block_size,
        default=DEFAULT_BLOCK_SIZE,
        metavar="TOKENS",
        help=f"tokens in one block (default {DEFAULT_BLOCK_SIZE})",
    )
    parser.add_argument("--output", choices=("table", "json"), default="table", help="(default: table)")


def parse_lengths(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between.

    >>> parse_lengths("35,17,64")
    (35, 17, 64)
    """
    way_out = f" in {text!r}; give whole numbers from 1 up with commas between, as 35,17,64"
    return tuple(_positive(part, way_out) for part in text.split(","))


def parse_block_size(text: str) -> int:
    """A whole number from 1 up."""
    return _positive(text, "; give a whole number from 1 up, as 16")


def _positive(text: str, way_out: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS and int(digits) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens{way_out}")
    return int(digits)


def run(arguments: argparse.Namespace) -> None:
    """Explain."""
    explanation = explain_blocks(arguments.lengths, block_size=arguments.block_size)
    print(as_json(explanation) if arguments.output == "json" else as_table(explanation))


def explain_blocks(lengths: SequenceOf[int], *, block_size: int) -> Explanation:
    """Allocate sequences of these lengths from one pool and read off what they hold.

    >>> explain_blocks((35, 17, 64), block_size=16).totals.num_blocks
    9
    """
    group = KVCacheGroup(layers=(0,))
    needed = sum(group.max_blocks_held(n, block_size=block_size, max_chunk=n) for n in lengths)
    if needed > MAX_BLOCKS:
        raise InvalidSpec(
            f"--lengths: with --block-size {block_size} they take {needed} blocks, and at most "
            f"{MAX_BLOCKS} are explained; give fewer or shorter sequences, or a larger --block-size"
        )
    pool = BlockPool(num_blocks=needed)
    blocks = SequenceBlocks(
        pool=pool,
        groups=(group,),
        block_size=block_size,
        max_chunk=max(lengths),
        hasher=PrefixHasher(block_size=block_size, root=b""),
        enable_prefix_caching=False,
    )
    sequences = tuple(
        _explain(_allocate(blocks, order, length), block_size) for order, length in enumerate(lengths)
    )
    return _with_totals(sequences, block_size=block_size, num_blocks=pool.counts.referenced)


def _allocate(blocks: SequenceBlocks, order: int, length: int) -> Sequence:
    """A sequence with all its blocks; sharing is left out, as nothing is known about its tokens."""
    sequence = Sequence(
        request_id=str(order),
        order=order,
        token_ids=[0] * length,
        num_prompt_tokens=length,
        stop=StopConditions(max_tokens=1),
    )
    blocks.attach(sequence, blocks.find_hit(sequence))
    fits = blocks.grow(sequence, length)
    assert fits, f"the pool was made for all sequences, and sequence {order} did not fit"
    return sequence


def _explain(sequence: Sequence, block_size: int) -> SequenceExplanation:
    (table,) = sequence.block_tables
    capacity = len(table) * block_size
    return SequenceExplanation(
        length=sequence.num_tokens,
        num_blocks=len(table),
        block_table=tuple(table),
        capacity_tokens=capacity,
        unused_slots=capacity - sequence.num_tokens,
    )


def _with_totals(
    sequences: tuple[SequenceExplanation, ...], *, block_size: int, num_blocks: int
) -> Explanation:
    totals = Totals(
        length=sum(sequence.length for sequence in sequences),
        num_blocks=num_blocks,
        capacity_tokens=num_blocks * block_size,
        unused_slots=sum(sequence.unused_slots for sequence in sequences),
    )
    return Explanation(
        block_size=block_size,
        max_unused_slots_per_sequence=block_size - 1,
        sequences=sequences,
        totals=totals,
    )


def as_json(explanation: Explanation) -> str:
    """All of it, block tables whole."""
    return json.dumps(asdict(explanation), indent=2)


def as_table(explanation: Explanation) -> str:
    """For people: one line per sequence, then the totals and the law."""
    totals = explanation.totals
    rows = [
        ("sequence", "tokens", "blocks", "capacity", "unused", "block table"),
        *(
            (str(number), *_numbers(sequence), _shortened(sequence.block_table))
            for number, sequence in enumerate(explanation.sequences)
        ),
        ("total", *_numbers(totals), ""),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join(
            [*(cell.rjust(width) for cell, width in zip(row[:5], widths, strict=True)), row[5]]
        ).rstrip()
        for row in rows
    ]
    lines.append(
        f"\nBlock size {explanation.block_size}: only a sequence's last block has unused slots, "
        f"at most {explanation.max_unused_slots_per_sequence}; "
        f"here {totals.unused_slots} of {totals.capacity_tokens} "
        f"({totals.unused_slots / totals.capacity_tokens:.1%})."
    )
    return "\n".join(lines)


def _numbers(row: SequenceExplanation | Totals) -> tuple[str, str, str, str]:
    return str(row.length), str(row.num_blocks), str(row.capacity_tokens), str(row.unused_slots)


def _shortened(table: SequenceOf[int]) -> str:
    shown = [str(block_id) for block_id in table]
    if len(shown) > MAX_IDS_SHOWN:
        shown[MAX_IDS_SHOWN - 2 : -1] = ["…"]
    return f"[{', '.join(shown)}]"
