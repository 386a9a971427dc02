"""What the scheduler did since the start, in numbers that only grow."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from octavo.engine_contract import OUTPUT_BOUNDS, UNCACHED_PROMPT_BOUNDS


@dataclass(slots=True)
class SchedulerCounters:
    """Totals over sequences."""

    admitted: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    uncached_prompt_tokens_squared: int = 0
    uncached_prompt_buckets: list[int] = field(
        default_factory=lambda: [0] * (len(UNCACHED_PROMPT_BOUNDS) + 1)
    )
    generated_tokens: int = 0
    output_tokens: int = 0
    output_buckets: list[int] = field(default_factory=lambda: [0] * (len(OUTPUT_BOUNDS) + 1))
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0

    def note_admission(self, *, prompt_tokens: int, cached: int) -> None:
        """A sequence started for the first time."""
        uncached = prompt_tokens - cached
        self.admitted += 1
        self.prompt_tokens += prompt_tokens
        self.cached_prompt_tokens += cached
        self.uncached_prompt_tokens_squared += uncached**2
        self.uncached_prompt_buckets[bisect_left(UNCACHED_PROMPT_BOUNDS, uncached)] += 1

    def note_completion(self, *, output_tokens: int) -> None:
        """A sequence ended by itself."""
        self.output_tokens += output_tokens
        self.output_buckets[bisect_left(OUTPUT_BOUNDS, output_tokens)] += 1
