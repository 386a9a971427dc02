"""Log-probabilities of the tokens of prompts, collected as the prompts' chunks are computed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Final

import torch
from torch import Tensor

from octavo_engine.requests import TokenLogprob

ROWS_AT_ONCE: Final = 32
"""Scores are rows of the vocabulary's width: a whole chunk's would take more memory than was measured."""


class PromptLogprobs:
    """Those found so far, for each request that asked for them.

    A prompt that was preempted is computed again, or found in the cache where its own earlier run left it:
    either way what was collected before stays.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[TokenLogprob | None]] = {}

    def begin(self, request_id: str) -> None:
        """Collect for this request; nothing precedes its first token."""
        self._found[request_id] = [None]

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._found.pop(request_id, None)

    def take(self, request_id: str) -> tuple[TokenLogprob | None, ...]:
        """All of them, once; empty for a request that did not ask."""
        return tuple(self._found.pop(request_id, ()))

    def is_wanted(self, request_id: str) -> bool:
        """Whether rows of this request are to be collected."""
        return request_id in self._found

    @torch.inference_mode()
    def collect(
        self,
        request_id: str,
        hidden: Tensor,  # [n, E]
        *,
        first_position: int,
        prompt_token_ids: SequenceOf[int],
        num_top: int,
        logits: Callable[[Tensor], Tensor],
    ) -> None:
        """Take the rows that were computed now: the row of each position scores the token behind it."""
        found = self._found[request_id]
        start = len(found) - 1
        stop = min(first_position + hidden.shape[0], len(prompt_token_ids) - 1)
        assert start >= stop or first_position <= start, f"{request_id}: rows of {start} were never seen"
        for begin in range(start, stop, ROWS_AT_ONCE):
            end = min(begin + ROWS_AT_ONCE, stop)
            scores = logits(hidden[begin - first_position : end - first_position])
            found.extend(_logprobs(scores, prompt_token_ids[begin + 1 : end + 1], num_top))


def _logprobs(scores: Tensor, token_ids: SequenceOf[int], num_top: int) -> list[TokenLogprob]:  # [n, V]
    logprobs = torch.log_softmax(scores, dim=-1)
    chosen = logprobs[range(len(token_ids)), list(token_ids)].tolist()
    top = logprobs.topk(min(num_top, logprobs.shape[1]))
    return [
        TokenLogprob(token_id=token_id, logprob=logprob, top=tuple(zip(ids, values, strict=True)))
        for token_id, logprob, ids, values in zip(
            token_ids, chosen, top.indices.tolist(), top.values.tolist(), strict=True
        )
    ]
