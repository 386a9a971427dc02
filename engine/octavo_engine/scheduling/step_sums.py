"""What the steps computed, in sum: the terms of the planner's step model T = a + b·p + c·C + d·B."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from octavo_engine.scheduling.batch_layout import BatchLayout
from octavo_engine.scheduling.scheduler import ScheduledSequence
from octavo_engine.scheduling.sequence import Sequence


@dataclass(slots=True)
class StepSums:
    """Totals over steps; `engine_contract` says what each of them counts."""

    steps: int = 0
    seconds: float = 0.0
    prefill_tokens: int = 0
    sequences: int = 0
    group_context_tokens: int = 0
    """Summed over groups too; of all layers is the mean over groups."""

    def add(self, scheduled: SequenceOf[ScheduledSequence], layout: BatchLayout) -> None:
        """Count a step, before its results are recorded."""
        self.steps += 1
        self.sequences += len(scheduled)
        self.prefill_tokens += sum(
            item.num_own_tokens for item in scheduled if not _only_generates(item.sequence)
        )
        self.group_context_tokens += sum(span.context_len for group in layout.groups for span in group.spans)


def _only_generates(sequence: Sequence) -> bool:
    """Whether all but the token that it drew last is computed."""
    return sequence.num_output_tokens > 0 and sequence.num_uncomputed_tokens == 1
