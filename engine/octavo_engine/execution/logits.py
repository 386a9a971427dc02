"""Changes to one row's scores before a token is chosen: penalties, biases and forbidden ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo_engine.requests import SamplingParams, TokenConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """What must be known of one sequence to choose its next token."""

    params: SamplingParams
    seed: int
    """The request's, or one drawn for it when it came."""
    prompt_token_ids: SequenceOf[int]
    output_token_ids: SequenceOf[int]
    end_token_ids: frozenset[int]
    """Not to be drawn before `min_tokens`."""
    constraint: TokenConstraint | None = None

    @property
    def position(self) -> int:
        """Of the token to be drawn."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def forbidden(self) -> frozenset[int]:
        """Ids that must not be drawn now."""
        return self.end_token_ids if len(self.output_token_ids) < self.params.min_tokens else frozenset()


def adjust_logits(scores: Tensor, row: SampleRow) -> str | None:
    """Change one row's scores [V] in place; a row that asks for nothing is left alone.

    Gives the reason if no token can be drawn.
    """
    params = row.params
    if params.repetition_penalty != 1.0:
        seen = {*row.prompt_token_ids, *row.output_token_ids}
        _penalize_repetition(scores, seen, params.repetition_penalty)
    if (params.presence_penalty or params.frequency_penalty) and row.output_token_ids:
        _penalize_output(scores, Counter(row.output_token_ids), params)
    for token_id, bias in params.logit_bias.items():
        scores[token_id] += bias
    return _forbid(scores, row)


def _forbid(scores: Tensor, row: SampleRow) -> str | None:
    """Leave only what the grammar allows. It may allow nothing but the end: then `min_tokens` yields."""
    forbidden = [token_id for token_id in row.forbidden if token_id < scores.shape[0]]
    if row.constraint is not None:
        mask = row.constraint.allowed_after(row.output_token_ids)
        if mask is None:
            return "the grammar is too complex to be followed to here"
        allowed = torch.frombuffer(bytearray(mask), dtype=torch.uint8)[: scores.shape[0]].bool()
        if not allowed.any():
            return "the grammar allows no token of the vocabulary here"
        scores.masked_fill_(~allowed.to(scores.device), -torch.inf)
        allowed[forbidden] = False
        forbidden = forbidden if allowed.any() else []
    if forbidden:
        scores[forbidden] = -torch.inf
    return None


def _penalize_repetition(scores: Tensor, token_ids: set[int], penalty: float) -> None:
    """Make tokens of prompt and output less likely: positive scores shrink, negative ones grow."""
    index = torch.tensor([t for t in token_ids if t < scores.shape[0]], device=scores.device)
    seen = scores[index]
    scores[index] = torch.where(seen > 0, seen / penalty, seen * penalty)


def _penalize_output(scores: Tensor, counts: Counter[int], params: SamplingParams) -> None:
    """Subtract once for being there and once for each time, over output tokens only."""
    index = torch.tensor(list(counts), device=scores.device)
    times = torch.tensor(list(counts.values()), dtype=scores.dtype, device=scores.device)
    scores[index] -= params.presence_penalty + params.frequency_penalty * times
