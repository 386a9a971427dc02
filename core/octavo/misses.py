"""Which share of requests misses the objective on a replica with so many requests a second.

Means are not enough. One long prompt of a neighbour spoils the mean time per token of an answer of sixteen
tokens, and a cache that is half full in the mean is full now and then. So what falls into a request's time
is taken as what it is: prompts of the observed lengths at random moments (a compound Poisson process).

Sources: Wilson and Hilferty (1931) for the gamma distribution; Pollaczek and Khinchine for the wait in a
queue with one server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from octavo.replica_load import Objective, ReplicaLimits, Traffic, decode_seconds, occupancy, tpot_seconds
from octavo.step_model import StepCosts
from octavo.token_sizes import steps_of

GROWTH_IN_USE: Final = 0.25
"""Of the cache that is kept back for sequences that grow: so much is taken at a time."""
FREED_IN_TURN: Final = 0.5
"""Of what is freed while a request can wait: the rest goes to those that waited before it. And none of more
than what is free in the mean: a queue that never empties helps nobody."""
LEAST_LIVES: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """Shares of requests, by what makes them miss."""

    slow: float
    """More time per token than they may have."""
    late: float
    """The first token too late, behind other prompts."""
    blocked: float
    """They find no room in the KV cache."""
    crowded: float
    """They find no place among the sequences."""

    @property
    def any(self) -> float:
        return 1 - (1 - self.slow) * (1 - self.late) * (1 - self.blocked) * (1 - self.crowded)

    @property
    def by_memory(self) -> float:
        return 1 - (1 - self.blocked) * (1 - self.crowded)


ALL: Final = Misses(slow=1.0, late=1.0, blocked=1.0, crowded=1.0)


def misses_at(
    costs: StepCosts, traffic: Traffic, limits: ReplicaLimits, objective: Objective, rate: float
) -> Misses:
    """At so many requests a second; all of them beyond what can be computed."""
    if tpot_seconds(costs, traffic, rate) == math.inf:
        return ALL
    running = occupancy(costs, traffic, rate)
    held = running * traffic.kv_tokens
    room = (1 - GROWTH_IN_USE * (1 - limits.memory_share)) * limits.kv_tokens
    ended = room * _ended_in_time(costs, traffic, objective, rate)
    freed = FREED_IN_TURN * min(ended, max(0.0, room - held))
    return Misses(
        slow=slow_share(costs, traffic, objective.tpot_seconds, rate),
        late=first_tokens(costs, traffic, rate).late_share(objective.ttft_seconds),
        blocked=share_above(room + freed, mean=held, variance=held * traffic.kv_spread),
        crowded=share_above(limits.max_sequences, mean=running, variance=running),
    )


def _ended_in_time(costs: StepCosts, traffic: Traffic, objective: Objective, rate: float) -> float:
    """Share of the sequences that end while a request without room can still be in time."""
    step = tpot_seconds(costs, traffic, rate)
    own = costs.prefill_token_seconds * traffic.prompts.mean + step
    return max(0.0, objective.ttft_seconds - own) / (traffic.output_tokens * step)


def slow_share(costs: StepCosts, traffic: Traffic, tpot: float, rate: float) -> float:
    """Requests whose mean time per token exceeds `tpot`.

    One with n gaps between its tokens is slow if, in n times that, more prefill arrives than its n plain
    steps leave time for. A prompt that is too long by itself is enough; shorter ones add up.

    One that ends sooner is counted as if it stayed that long: where a prompt takes more time than an answer
    can spare, that is too many, and the more the longer it may take.
    """
    plain, token = _plain_step(costs, traffic, rate), costs.prefill_token_seconds
    if plain >= tpot:
        return 1.0
    running, step = occupancy(costs, traffic, rate), tpot_seconds(costs, traffic, rate)
    life, decode = traffic.output_tokens * step, decode_seconds(costs, traffic)
    missed = 0.0
    for tokens, share in zip(traffic.outputs.tokens, traffic.outputs.shares, strict=True):
        gaps = tokens - 1
        if gaps <= 0:
            continue
        arrivals = rate * (gaps * tpot + step)  # what comes while the first token is computed follows it
        slack = gaps * (tpot - plain)
        short, tokens_sum, square_sum = traffic.prompts.up_to(slack / token)
        swing = (gaps * decode) ** 2 * running * _left_of_variance(gaps * tpot / life)
        by_many = share_above(
            slack,
            mean=arrivals * token * tokens_sum,
            variance=arrivals * token**2 * square_sum + swing,
        )
        missed += share * (1 - math.exp(-arrivals * max(0.0, 1 - short)) * (1 - by_many))
    return min(1.0, missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokens:
    """How long they take at one rate, behind the prompts before theirs and by their own steps."""

    own_seconds: tuple[float, ...]
    """Of each size of prompt, alone."""
    shares: tuple[float, ...]
    """Of the requests, by size."""
    load: float
    """Share of the time in which a prompt is computed; from 1 up the queue grows without end."""
    wait_seconds: float
    """In the mean, of those that wait."""
    step_seconds: float

    def late_share(self, ttft: float) -> float:
        """Requests whose first token comes later."""
        if self.load >= 1:
            return 1.0
        missed = 0.0
        for own, share in zip(self.own_seconds, self.shares, strict=True):
            left = ttft - own - self.step_seconds
            missed += share * (1.0 if left < 0 else self.load * math.exp(-left / self.wait_seconds))
        return min(1.0, missed)


def first_tokens(costs: StepCosts, traffic: Traffic, rate: float) -> FirstTokens:
    """At so many requests a second."""
    plain, token, prompts = _plain_step(costs, traffic, rate), costs.prefill_token_seconds, traffic.prompts
    owns = tuple(token * size + plain * steps_of(size, traffic.step_tokens) for size in prompts.tokens)
    mean = sum(share * own for own, share in zip(owns, prompts.shares, strict=True))
    square = sum(share * own * own for own, share in zip(owns, prompts.shares, strict=True))
    load = rate * mean
    return FirstTokens(
        own_seconds=owns,
        shares=prompts.shares,
        load=load,
        wait_seconds=square / (2 * mean * (1 - load)) if load < 1 else math.inf,
        step_seconds=tpot_seconds(costs, traffic, rate),
    )


def _plain_step(costs: StepCosts, traffic: Traffic, rate: float) -> float:
    """Without a prompt in it."""
    return costs.base_seconds + occupancy(costs, traffic, rate) * decode_seconds(costs, traffic)


def _left_of_variance(lives: float) -> float:
    """Of a quantity that forgets itself within one life, in its mean over so many of them.

    >>> _left_of_variance(0.0), round(_left_of_variance(10.0), 2)
    (1.0, 0.18)
    """
    return 1.0 if lives < LEAST_LIVES else 2 * (lives - 1 + math.exp(-lives)) / lives**2


def share_above(limit: float, *, mean: float, variance: float) -> float:
    """Of a gamma distribution.

    >>> round(share_above(15.0, mean=10.0, variance=10.0), 2), share_above(1.0, mean=0.0, variance=0.0)
    (0.07, 0.0)
    """
    if mean <= 0:
        return 0.0
    if limit <= 0:
        return 1.0
    sigma = math.sqrt(variance) / (3 * mean)
    if sigma == 0:
        return 1.0 if mean > limit else 0.0
    deviation = ((limit / mean) ** (1 / 3) - 1 + sigma * sigma) / sigma
    return 0.5 * math.erfc(deviation / math.sqrt(2))
