"""Draws the tokens of a step, and of drafts as many as are what would have been drawn without them.

A draft is a fixed guess, so that rejection sampling comes down to this: draw the token from the
model's own distribution, with the random number of its position, and go on behind the draft only if
it is that token. The text is then the same with drafts and without, greedy and sampled alike.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from itertools import accumulate

from torch import Tensor

from octavo_engine.execution.logits import SampleRow
from octavo_engine.execution.sampler import SampledToken, sample
from octavo_engine.requests import TokenLogprob
from octavo_engine.scheduling.scheduler import ScheduledSequence

RowAfter = Callable[[ScheduledSequence, int], SampleRow]
"""What to sample a sequence by, behind so many of its drafts."""


@dataclass(slots=True)
class Drawn:
    """One sequence's tokens of a step: its right drafts and one more. None at all is a failure."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    error: str | None = None
    """Why there is no token, where it is not that the scores were not finite."""

    def add(self, result: SampledToken) -> None:
        """Take the next token. A failure behind a right draft is left for the next step to tell."""
        if result.token_id is None:
            self.error = result.error
            return
        self.token_ids.append(result.token_id)
        if result.logprob is not None:
            self.logprobs.append(result.logprob)


def draw_and_verify(
    logits: Tensor,  # [R, V] float32; changed in place
    items: SequenceOf[ScheduledSequence],
    row_after: RowAfter,
) -> list[Drawn]:
    """Draw for each sequence its next token, and the ones after it while its drafts are right."""
    first_rows = list(accumulate((item.num_sample_rows for item in items), initial=0))
    drawn = [Drawn() for _ in items]
    ahead, going_on = 0, list(range(len(items)))
    while going_on:
        picked = [first_rows[index] + ahead for index in going_on]
        scores = logits if len(picked) == logits.shape[0] else logits[picked]
        results = sample(scores, [row_after(items[index], ahead) for index in going_on])
        for index, result in zip(going_on, results, strict=True):
            drawn[index].add(result)
        going_on = [
            index
            for index, result in zip(going_on, results, strict=True)
            if result.token_id in items[index].draft_token_ids[ahead : ahead + 1]
        ]
        ahead += 1
    return drawn
