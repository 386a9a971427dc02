"""What goes into the engine and what comes out: plain frozen values, safe to pass between threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from octavo.errors import InvalidSpec

FinishReason = Literal["stop", "length", "abort", "error"]

MAX_LOGPROBS: Final = 20
"""Alternatives per token that a client may ask for (the OpenAI API's limit)."""

REFUSED_TOO_LONG: Final = "ContextTooLong"
"""Prompt, or prompt and asked output, exceed the context length."""
REFUSED_NEVER_FITS: Final = "ExceedsCacheCapacity"
"""The whole KV cache would not hold this one request."""
REFUSED_QUEUE_FULL: Final = "QueueFull"
"""Too many requests wait already: try again later (HTTP 429)."""
REFUSED_INVALID: Final = "InvalidRequest"
"""Token ids outside the vocabulary, an empty prompt and the like."""
REFUSED_UNKNOWN_ADAPTER: Final = "UnknownAdapter"
"""No adapter of this name is loaded (HTTP 404)."""
REFUSED_ADAPTER: Final = "AdapterRefused"
"""An adapter that cannot be loaded: its files, its rank, or no room."""
REFUSED_DUPLICATE_ID: Final = "DuplicateRequestId"
"""A request with this id is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are chosen and when it ends."""

    max_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    seed: int | None = None
    """The same seed draws the same random numbers whatever else is in the batch; None: unpredictable."""
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    """No end-of-sequence or stop id before this many tokens."""
    logprobs: int | None = None
    """None: none. 0: the chosen token's only. n: the n most likely besides."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens; such a prompt takes nothing from the cache."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values outside their ranges, by name; NaN is outside of every range."""
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _require(0 <= self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, "0 to max_tokens")
        _require(
            self.temperature >= 0.0 and math.isfinite(self.temperature),
            "temperature",
            self.temperature,
            "finite and at least 0",
        )
        _require(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "at least 0 (0 is off)")
        _require(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "0 to 1")
        _require(-2.0 <= self.presence_penalty <= 2.0, "presence_penalty", self.presence_penalty, "-2 to 2")
        _require(
            -2.0 <= self.frequency_penalty <= 2.0, "frequency_penalty", self.frequency_penalty, "-2 to 2"
        )
        _require(
            self.repetition_penalty > 0.0 and math.isfinite(self.repetition_penalty),
            "repetition_penalty",
            self.repetition_penalty,
            "finite and above 0",
        )
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            _require(count is None or 0 <= count <= MAX_LOGPROBS, name, count, f"0 to {MAX_LOGPROBS}")
        for token_id, bias in self.logit_bias.items():
            _require(-100.0 <= bias <= 100.0, f"logit_bias[{token_id}]", bias, "-100 to 100")

    @property
    def is_greedy(self) -> bool:
        """Temperature 0: the most likely token, no random number drawn."""
        return self.temperature == 0.0


def _require(holds: bool, name: str, value: float, expected: str) -> None:
    if not holds:
        raise InvalidSpec(f"{name}: must be {expected}, got {value}")


class TokenConstraint(Protocol):
    """What one sequence may say next, by a grammar. It has state, so it serves one sequence only.

    It is asked with the whole output, so that preemption, recomputation and the like cannot bring its
    state out of step: each output position advances it once.
    """

    def allowed_after(self, output_token_ids: SequenceOf[int]) -> bytes | None:
        """One byte for each token id, 0 if it may not follow; None if the grammar cannot be followed.

        End-of-sequence ids may follow where the grammar accepts the output as it is, and only there.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One prompt, tokenized, and how to continue it."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    arrival: float
    """On the clock that `LLMEngine.step(now)` is given."""
    cache_salt: str = ""
    """Requests share cached blocks only when their salts are equal."""
    constraint: TokenConstraint | None = None
    adapter: str = ""
    """Name of the LoRA adapter to compute it with; empty: the model as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log-probability of one generated token and of the most likely ones, most likely first.

    They are those of the model's own distribution: before temperature, penalties and truncation.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """What one step did for one request."""

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of `token_ids`, if asked for."""
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()
    """On the first event, if asked for: one for each prompt token, None for the first of them."""
    finish_reason: FinishReason | None = None
    """Set on the last event of a request, and only there."""
    error: str | None = None
    num_cached_tokens: int = 0
    """Prompt tokens whose keys and values came from the cache."""
    queue_seconds: float | None = None
    """On a request's first event: from its arrival until it was first admitted."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected "no" to a request, fit to show to the client."""

    reason: str
    message: str
