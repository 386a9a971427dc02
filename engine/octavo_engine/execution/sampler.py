"""From scores to tokens, each row by its own parameters.

Greedy rows are one argmax for all. Sampled rows are drawn by inverting the cumulative distribution
with one random number per token, keyed by the request's seed and the token's position. The rows that
keep only likely tokens look at a few candidates first and at more only if those do not suffice:
the vocabulary is never sorted as a matter of course.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from octavo_engine.execution.logits import SampleRow, adjust_logits
from octavo_engine.execution.philox import uniform
from octavo_engine.requests import TokenLogprob

FIRST_CANDIDATES: Final = 128
"""Most likely tokens looked at first for top-p."""
MIN_TEMPERATURE: Final = 1e-7
"""Below this a division would overflow; the result is greedy long before."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One row's result; `token_id` is None if none could be drawn."""

    token_id: int | None
    logprob: TokenLogprob | None = None
    error: str | None = None
    """Why there is no token, where it is not that the scores were not finite."""


@torch.inference_mode()
def sample(logits: Tensor, rows: SequenceOf[SampleRow]) -> list[SampledToken]:
    """Draw one token for each row of logits [R, V] float32, which is changed in place."""
    finite = (torch.isfinite(logits.amax(dim=-1)) & ~torch.isnan(logits).any(dim=-1)).tolist()
    raw = {index: logits[index].clone() for index, row in enumerate(rows) if row.params.logprobs is not None}
    errors = [adjust_logits(logits[index], row) if finite[index] else None for index, row in enumerate(rows)]
    greedy = logits.argmax(dim=-1).tolist()
    results: list[SampledToken] = []
    for index, row in enumerate(rows):
        if not finite[index] or errors[index] is not None:
            results.append(SampledToken(None, error=errors[index]))
            continue
        token_id = greedy[index] if row.params.is_greedy else _draw(logits[index], row)
        results.append(SampledToken(token_id, _logprob(raw.get(index), token_id, row.params.logprobs)))
    return results


def _draw(scores: Tensor, row: SampleRow) -> int:  # [V]
    """One token of the distribution that temperature, top-k, top-p and min-p leave."""
    params = row.params
    random = uniform(row.seed, row.position)
    weights = torch.exp((scores - scores.max()).double() / max(params.temperature, MIN_TEMPERATURE))  # [V]
    limit = params.top_k if 0 < params.top_k < weights.shape[0] else weights.shape[0]
    if limit == weights.shape[0] and params.top_p == 1.0:
        kept = weights if params.min_p == 0.0 else weights * (weights >= params.min_p)
        return _invert(kept, random)
    likely, token_ids = _likely(weights, limit=limit, top_p=params.top_p)
    kept = likely * (likely >= params.min_p)  # the most likely weighs 1
    return int(token_ids[_invert(kept, random)])


def _likely(weights: Tensor, *, limit: int, top_p: float) -> tuple[Tensor, Tensor]:
    """The at most `limit` heaviest tokens, cut where they reach `top_p` of their sum; heaviest first."""
    if top_p == 1.0:
        top = weights.topk(limit)
        return top.values, top.indices
    total = weights.sum() if limit == weights.shape[0] else weights.topk(limit, sorted=False).values.sum()
    count = min(FIRST_CANDIDATES, limit)
    while True:
        top = weights.topk(count)
        before = top.values.cumsum(0) - top.values  # weight of all that are heavier
        keep = int((before < top_p * total).sum())
        if keep < count or count == limit:
            return top.values[:keep], top.indices[:keep]
        count = min(count * 8, limit)


def _invert(weights: Tensor, random: float) -> int:
    """Index at which the cumulative weight passes `random` of the sum; never one of weight zero."""
    cumulative = weights.cumsum(0)
    index = int(torch.searchsorted(cumulative, random * cumulative[-1], right=True))
    return min(index, int(weights.nonzero()[-1])) if index >= weights.shape[0] else index


def _logprob(scores: Tensor | None, token_id: int, count: int | None) -> TokenLogprob | None:
    if scores is None or count is None:
        return None
    logprobs = torch.log_softmax(scores, dim=-1)
    top = logprobs.topk(min(count, logprobs.shape[0]))
    return TokenLogprob(
        token_id=token_id,
        logprob=float(logprobs[token_id]),
        top=tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
    )
