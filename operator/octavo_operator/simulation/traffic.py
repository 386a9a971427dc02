"""What requests ask for: lengths of prompt and output, and how much of a prompt a warm cache has.

The lengths are log-normal fits to the Azure LLM inference traces 2023 (Microsoft, CC-BY 4.0), cut at what a
model of 8192 tokens takes. The traces say nothing about prefixes: those shares are assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from octavo_operator.simulation.fleet_state import Floats, Ints

BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """A length in tokens."""

    mu: float
    sigma: float
    most: int

    def draw(self, random: np.random.Generator, count: int) -> Ints:
        """Whole numbers from 1 to the most."""
        drawn = random.lognormal(self.mu, self.sigma, count)
        return np.clip(np.rint(drawn), 1, self.most).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of client."""

    name: str
    prompt: LogNormal
    output: LogNormal
    variation: float
    """Coefficient of variation of the gaps between arrivals of one stream."""
    stream_rate: float
    """Requests per second of the stream that this was measured on: more of them are several streams."""
    shared_tokens: int
    """Of the system prompt, the same in every request."""
    follow_up_ratio: float
    """Share of requests that continue a text which the cache still has."""
    follow_up_tokens_ratio: float
    """Share of such a prompt that is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Requests in order of arrival."""

    arrival: Floats
    prompt: Ints
    output: Ints
    shared: Ints
    reusable: Ints


CONVERSATION: Final = Traffic(
    name="conv",
    prompt=LogNormal(mu=6.63, sigma=0.99, most=7168),
    output=LogNormal(mu=5.02, sigma=0.86, most=1000),
    variation=1.1,
    stream_rate=5.4,
    shared_tokens=128,
    follow_up_ratio=0.3,
    follow_up_tokens_ratio=0.6,
)
CODE: Final = Traffic(
    name="code",
    prompt=LogNormal(mu=7.00, sigma=1.36, most=7168),
    output=LogNormal(mu=2.79, sigma=0.85, most=1000),
    variation=13.0,
    stream_rate=2.6,
    shared_tokens=64,
    follow_up_ratio=0.5,
    follow_up_tokens_ratio=0.7,
)


def draw_requests(random: np.random.Generator, traffic: Traffic, arrival: Floats) -> Drawn:
    """One request for each arrival."""
    count = len(arrival)
    prompt = traffic.prompt.draw(random, count)
    follows = random.random(count) < traffic.follow_up_ratio
    shared = _whole_blocks(np.minimum(traffic.shared_tokens, prompt - 1))
    found = np.where(follows, prompt * traffic.follow_up_tokens_ratio, 0).astype(np.int64)
    return Drawn(
        arrival=arrival,
        prompt=prompt,
        output=traffic.output.draw(random, count),
        shared=shared,
        reusable=_whole_blocks(np.maximum(0, np.minimum(found, prompt - 1) - shared)),
    )


def merge(*parts: Drawn) -> Drawn:
    """Several kinds of clients on one service."""
    order = np.argsort(np.concatenate([part.arrival for part in parts]), kind="stable")
    return Drawn(
        arrival=np.concatenate([part.arrival for part in parts])[order],
        prompt=np.concatenate([part.prompt for part in parts])[order],
        output=np.concatenate([part.output for part in parts])[order],
        shared=np.concatenate([part.shared for part in parts])[order],
        reusable=np.concatenate([part.reusable for part in parts])[order],
    )


def _whole_blocks(tokens: Ints) -> Ints:
    return tokens // BLOCK_TOKENS * BLOCK_TOKENS
