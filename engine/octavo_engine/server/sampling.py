"""From a request's fields, the model's defaults and the room that is left to sampling parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from octavo.errors import InvalidSpec
from octavo_engine.requests import SamplingParams
from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.server.schema import ChatBody, CompletionBody, SamplingBody
from octavo_engine.text.generation_defaults import GenerationDefaults

DEFAULT_COMPLETION_TOKENS: Final = 16
"""The OpenAI API's default for /v1/completions; chat answers may use the whole context."""

MAX_ID_DIGITS: Final = 10
"""A token id is written with at most so many digits."""


def completion_max_tokens(body: CompletionBody, *, prompt_tokens: int, max_model_len: int) -> int:
    """How many tokens a completion may have; raises ApiError if the context is too short."""
    room = _room(prompt_tokens, max_model_len, "prompt")
    if body.max_tokens is None:
        return min(DEFAULT_COMPLETION_TOKENS, room)
    if body.max_tokens == 0:
        if not body.echo:
            raise bad_request("max_tokens: 0 asks for nothing, unless echo is true", param="max_tokens")
        return 1  # the engine draws one token, which is left out of the answer
    return _within(body.max_tokens, room, prompt_tokens, max_model_len, "max_tokens")


def chat_max_tokens(body: ChatBody, *, prompt_tokens: int, max_model_len: int) -> int:
    """How many tokens a chat answer may have; raises ApiError if the context is too short."""
    room = _room(prompt_tokens, max_model_len, "messages")
    asked, name = body.max_completion_tokens, "max_completion_tokens"
    if asked is None:
        asked, name = body.max_tokens, "max_tokens"
    elif body.max_tokens not in (None, asked):
        raise bad_request("max_tokens: contradicts max_completion_tokens; send only one", param="max_tokens")
    return room if asked is None else _within(asked, room, prompt_tokens, max_model_len, name)


def _room(prompt_tokens: int, max_model_len: int, param: str) -> int:
    if prompt_tokens >= max_model_len:
        raise _too_long(
            f"the context is {max_model_len} tokens and the prompt alone has {prompt_tokens}; shorten it",
            param,
        )
    return max_model_len - prompt_tokens


def _within(asked: int, room: int, prompt_tokens: int, max_model_len: int, name: str) -> int:
    if asked > room:
        raise _too_long(
            f"{name}: the context is {max_model_len} tokens; the prompt has {prompt_tokens} and {asked} are "
            f"asked for; ask for at most {room}",
            name,
        )
    return asked


def _too_long(message: str, param: str) -> ApiError:
    return bad_request(message, param=param, code="context_length_exceeded")


def build_sampling_params(
    body: SamplingBody,
    defaults: GenerationDefaults,
    *,
    max_tokens: int,
    logprobs: int | None,
    vocab_size: int,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Parameters of the first choice; raises ApiError naming the field."""
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=_or(body.temperature, defaults.temperature),
            top_p=_or(body.top_p, defaults.top_p),
            top_k=min(max(0, int(_or(body.top_k, defaults.top_k))), vocab_size),
            min_p=_or(body.min_p, defaults.min_p),
            seed=None if body.seed is None else body.seed % 2**64,
            stop_token_ids=_stop_token_ids(body, vocab_size),
            ignore_eos=bool(body.ignore_eos),
            min_tokens=body.min_tokens or 0,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            presence_penalty=body.presence_penalty or 0.0,
            frequency_penalty=body.frequency_penalty or 0.0,
            repetition_penalty=_or(body.repetition_penalty, defaults.repetition_penalty),
            logit_bias=_logit_bias(body.logit_bias or {}, vocab_size),
        )
    except InvalidSpec as error:
        raise bad_request(str(error), param=str(error).partition(":")[0], code="invalid_value") from error


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _stop_token_ids(body: SamplingBody, vocab_size: int) -> frozenset[int]:
    for token_id in body.stop_token_ids or []:
        _check_token_id(token_id, "stop_token_ids", vocab_size)
    return frozenset(body.stop_token_ids or [])


def _logit_bias(value: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= MAX_ID_DIGITS):
            raise bad_request(f"logit_bias: {key[:40]!r} is not a token id", param="logit_bias")
        biases[_check_token_id(int(key), "logit_bias", vocab_size)] = bias
    return biases


def _check_token_id(token_id: int, name: str, vocab_size: int) -> int:
    if not 0 <= token_id < vocab_size:
        raise bad_request(
            f"{name}: token id {token_id} is outside the vocabulary (0 to {vocab_size - 1})", param=name
        )
    return token_id


def seed_of_choice(seed: int | None, position: int) -> int | None:
    """Each of n choices draws its own numbers, the same ones whenever the request is repeated."""
    if seed is None or position == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
