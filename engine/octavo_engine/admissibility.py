"""Whether a request can be served at all, answered before it is queued.

A request that is queued will be scheduled: what could never fit is refused here, at once, with the
numbers that the client needs.
"""

from __future__ import annotations

from octavo_engine.engine_facts import EngineFacts
from octavo_engine.requests import (
    REFUSED_DUPLICATE_ID,
    REFUSED_INVALID,
    REFUSED_NEVER_FITS,
    REFUSED_QUEUE_FULL,
    REFUSED_TOO_LONG,
    EngineRequest,
    Refusal,
)


def refusal_of(
    request: EngineRequest, *, facts: EngineFacts, in_flight: bool, num_waiting: int, max_waiting: int
) -> Refusal | None:
    """Why this request is not taken, or None."""
    if in_flight:
        return Refusal(REFUSED_DUPLICATE_ID, f"a request with id {request.request_id!r} is in flight")
    refusal = _unknown_token(request, facts) or _too_long(request, facts)
    if refusal is None and num_waiting >= max_waiting:
        return Refusal(REFUSED_QUEUE_FULL, f"{num_waiting} requests wait already; try again later")
    return refusal


def _unknown_token(request: EngineRequest, facts: EngineFacts) -> Refusal | None:
    if not request.prompt_token_ids:
        return Refusal(REFUSED_INVALID, "the prompt has no tokens")
    for name, token_ids in (("prompt", request.prompt_token_ids), ("logit_bias", request.params.logit_bias)):
        for token_id in token_ids:
            if not 0 <= token_id < facts.vocab_size:
                message = (
                    f"{name}: token id {token_id} is outside of the vocabulary, 0 to {facts.vocab_size - 1}"
                )
                return Refusal(REFUSED_INVALID, message)
    return None


def _too_long(request: EngineRequest, facts: EngineFacts) -> Refusal | None:
    """The last generated token is never cached, so that one less than the total needs room."""
    prompt, output = len(request.prompt_token_ids), request.params.max_tokens
    asked = f"{prompt} prompt tokens and up to {output} output tokens"
    if prompt + output > facts.context_len:
        return Refusal(
            REFUSED_TOO_LONG, f"the context length is {facts.context_len} tokens; this request has {asked}"
        )
    if prompt + output - 1 > facts.capacity_tokens:
        return Refusal(
            REFUSED_NEVER_FITS,
            f"the KV cache holds {facts.capacity_tokens} tokens "
            f"({facts.num_kv_blocks} blocks of {facts.block_size}); this request has {asked}",
        )
    return None
