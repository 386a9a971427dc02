"""One stream of tokens: its text so far, how much of it is computed, and the blocks that hold it.

There is no prefill or decode phase. `num_computed_tokens` chases `num_tokens`; a sequence whose
last token but one is computed produces a new one. After a preemption it chases again from zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from octavo_engine.scheduling.ngram_drafts import NGramIndex

FinishReason = Literal["stop", "length", "abort", "error"]
SequenceState = Literal["waiting", "running", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopConditions:
    """When a sequence ends of itself."""

    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    """End-of-sequence ids included, unless the client asked to ignore them."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """Mutable state of one sequence; owned by the scheduler."""

    request_id: str
    order: int
    """Place in the order of arrival: lower is older, and older is never preempted for younger."""
    token_ids: list[int]
    num_prompt_tokens: int
    stop: StopConditions
    salt: str = ""
    adapter: str = ""
    """Identity of the adapter that computes it: sequences share cached blocks only where this is equal."""
    state: SequenceState = "waiting"
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in the cache at first admission."""
    num_preemptions: int = 0
    max_computed_tokens: int = 0
    """Furthest that it ever was computed: what lies below is recomputation."""
    block_tables: list[list[int]] = field(default_factory=list)
    """One table for each KV-cache group; empty while waiting."""
    num_released_blocks: list[int] = field(default_factory=list)
    """For each group, leading table entries that are null because the window left them."""
    block_hashes: list[bytes] = field(default_factory=list)
    num_registered_blocks: int = 0
    ngrams: NGramIndex = field(default_factory=NGramIndex)
    finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """1 while it generates, more while it is behind."""
        return len(self.token_ids) - self.num_computed_tokens

    def draft(self, *, most: int) -> tuple[int, ...]:
        """A guess at the tokens after the next step's: never one that ends it, nor as many as end it."""
        most = min(most, self.stop.max_tokens - self.num_output_tokens - 1)
        if most <= 0:
            return ()
        guess = self.ngrams.continuation(self.token_ids, most=most)
        return tuple(takewhile(lambda token_id: token_id not in self.stop.stop_token_ids, guess))

    def end_after(self, token_id: int) -> FinishReason | None:
        """The reason to end, if the token just appended is the last."""
        if token_id in self.stop.stop_token_ids and self.num_output_tokens >= self.stop.min_tokens:
            return "stop"
        if self.num_output_tokens >= self.stop.max_tokens:
            return "length"
        return None
