"""One step of a simulated replica: which tokens it computes, how long that takes, what it leads to.

As in the engine: running sequences first, oldest first, each chasing its total under one token budget;
the newest is preempted when blocks run out; then waiting ones start, in order, with what is left.
"""

from __future__ import annotations

import numpy as np

from octavo_operator.simulation.admission import blocks_for, can_admit, remember_output
from octavo_operator.simulation.compiled import compiled
from octavo_operator.simulation.engine_law import StepLaw
from octavo_operator.simulation.fleet_state import (
    ADMITTED,
    CACHED,
    DONE,
    FINISHED,
    GENERATED,
    NOBODY,
    PREEMPTIONS,
    PROMPT,
    RECOMPUTED,
    RUNNING,
    SUM_CONTEXT,
    SUM_PREFILL,
    SUM_SEQUENCES,
    SUM_UNCACHED_SQUARED,
    TPOT_SECONDS,
    TTFT_SECONDS,
    WAITING,
    Bounds,
    Ints,
    Records,
)


@compiled
def enqueue(requests: Records, replicas: Records, replica: int, request: int) -> None:
    """Put a request at the end of a replica's queue."""
    requests[request]["state"] = WAITING
    requests[request]["replica"] = replica
    requests[request]["follower"] = NOBODY
    if replicas[replica]["tail"] == NOBODY:
        replicas[replica]["head"] = request
    else:
        requests[replicas[replica]["tail"]]["follower"] = request
    replicas[replica]["tail"] = request
    replicas[replica]["num_waiting"] += 1


@compiled
def preempt_newest(requests: Records, replicas: Records, replica: int) -> int:
    """Send the newest running sequence back to the head of the queue, to be computed again."""
    count = replicas[replica]["num_running"] - 1
    request = int(replicas[replica]["running"][count])
    replicas[replica]["num_running"] = count
    release(replicas, requests, replica, request)
    requests[request]["state"] = WAITING
    requests[request]["computed"] = 0
    requests[request]["preempted"] += 1
    requests[request]["follower"] = replicas[replica]["head"]
    replicas[replica]["head"] = request
    if replicas[replica]["tail"] == NOBODY:
        replicas[replica]["tail"] = request
    replicas[replica]["num_waiting"] += 1
    replicas[replica]["counters"][PREEMPTIONS] += 1
    return request


@compiled
def release(replicas: Records, requests: Records, replica: int, request: int) -> None:
    """Give a sequence's blocks back; the shared prefix stays cached, and idle once nobody runs."""
    replicas[replica]["used_blocks"] -= requests[request]["blocks"]
    requests[request]["blocks"] = 0
    if replicas[replica]["num_running"] == 0:
        replicas[replica]["used_blocks"] = 0
        replicas[replica]["shared_blocks"] = 0


@compiled
def grow(law: StepLaw, requests: Records, replicas: Records, replica: int, request: int, chunk: int) -> bool:
    """Give the chunk its blocks, preempting the newest; False if the sequence itself had to go."""
    tokens = requests[request]["computed"] + chunk - requests[request]["shared"]
    needed = blocks_for(max(tokens, 0), law.block_tokens) - requests[request]["blocks"]
    while needed > law.num_blocks - replicas[replica]["used_blocks"]:
        if preempt_newest(requests, replicas, replica) == request:
            return False
    if needed > 0:
        requests[request]["blocks"] += needed
        replicas[replica]["used_blocks"] += needed
    return True


@compiled
def start(law: StepLaw, requests: Records, replicas: Records, bounds: Bounds, replica: int) -> int:
    """Move the head of the queue to the running ones; what its prefix finds in the cache is computed."""
    request = int(replicas[replica]["head"])
    replicas[replica]["head"] = requests[request]["follower"]
    if replicas[replica]["head"] == NOBODY:
        replicas[replica]["tail"] = NOBODY
    replicas[replica]["num_waiting"] -= 1
    warm = replicas[replica]["counters"][ADMITTED] > 0
    prefix = requests[request]["shared"] // law.block_tokens
    if prefix > replicas[replica]["shared_blocks"]:
        replicas[replica]["used_blocks"] += prefix - replicas[replica]["shared_blocks"]
        replicas[replica]["shared_blocks"] = prefix
    requests[request]["computed"] = requests[request]["shared"] + requests[request]["reusable"] if warm else 0
    requests[request]["blocks"] = 0
    requests[request]["state"] = RUNNING
    replicas[replica]["running"][replicas[replica]["num_running"]] = request
    replicas[replica]["num_running"] += 1
    if requests[request]["preempted"] == 0:
        count_admission(requests, replicas, bounds, replica, request)
    return request


@compiled
def count_admission(requests: Records, replicas: Records, bounds: Bounds, replica: int, request: int) -> None:
    """Note what a first admission brings."""
    cached = requests[request]["computed"]
    uncached = requests[request]["prompt"] - cached
    requests[request]["farthest"] = cached
    counters = replicas[replica]["counters"]
    counters[ADMITTED] += 1
    counters[PROMPT] += requests[request]["prompt"]
    counters[CACHED] += cached
    counters[SUM_UNCACHED_SQUARED] += float(uncached) * float(uncached)
    replicas[replica]["uncached_counts"][np.searchsorted(bounds.uncached, uncached)] += 1


@compiled
def choose(
    law: StepLaw,
    requests: Records,
    replicas: Records,
    bounds: Bounds,
    replica: int,
    chunks: Ints,
) -> int:
    """The tokens of the next step, by place among the running; how many sequences take part."""
    budget = law.max_batched_tokens
    preempted = replicas[replica]["counters"][PREEMPTIONS]
    place = 0
    while place < replicas[replica]["num_running"] and budget > 0:
        request = replicas[replica]["running"][place]
        left = requests[request]["prompt"] + requests[request]["generated"] - requests[request]["computed"]
        chunk = min(budget, left)
        if not grow(law, requests, replicas, replica, request, chunk):
            break
        chunks[place] = chunk
        budget -= chunk
        place += 1
    if preempted != replicas[replica]["counters"][PREEMPTIONS]:
        return place
    while (
        budget > 0
        and replicas[replica]["head"] != NOBODY
        and replicas[replica]["num_running"] < law.max_sequences
        and can_admit(law, requests, replicas, replica, replicas[replica]["head"])
    ):
        request = start(law, requests, replicas, bounds, replica)
        left = requests[request]["prompt"] + requests[request]["generated"] - requests[request]["computed"]
        chunk = min(budget, left)
        grow(law, requests, replicas, replica, request, chunk)
        chunks[place] = chunk
        budget -= chunk
        place += 1
    return place


@compiled
def measure(
    law: StepLaw, requests: Records, replicas: Records, replica: int, chunks: Ints, count: int
) -> float:
    """Seconds that the law gives the step, and the engine's own sums over steps."""
    prefill = 0
    context = 0
    attention = 0.0
    for place in range(count):
        request = replicas[replica]["running"][place]
        chunk = chunks[place]
        done = requests[request]["computed"]
        context += done + chunk
        if done < requests[request]["prompt"] or chunk > 1:
            prefill += chunk
            attention += chunk * (done + 0.5 * chunk)
    counters = replicas[replica]["counters"]
    counters[SUM_PREFILL] += prefill
    counters[SUM_CONTEXT] += context
    counters[SUM_SEQUENCES] += count
    return step_seconds(law, prefill, context, count, attention)


@compiled
def step_seconds(law: StepLaw, prefill: int, context: int, count: int, attention: float) -> float:
    """The law of a step, without noise."""
    tiled = -(-prefill // law.tile_tokens) * law.tile_tokens
    return (
        law.fixed_seconds
        + law.seconds_per_prefill_token * tiled
        + law.seconds_per_context_token * context
        + law.seconds_per_sequence * count
        + law.seconds_per_prefill_context * attention
    )


@compiled
def record(
    requests: Records, replicas: Records, bounds: Bounds, replica: int, chunks: Ints, count: int
) -> None:
    """Advance every sequence that took part; those that reach their end leave."""
    now = replicas[replica]["clock"]
    kept = 0
    running = replicas[replica]["num_running"]
    for place in range(running):
        request = replicas[replica]["running"][place]
        if place < count:
            advance_sequence(requests, replicas, bounds, replica, request, chunks[place], now)
        if requests[request]["generated"] >= requests[request]["output"]:
            finish_sequence(requests, replicas, bounds, replica, request)
        else:
            replicas[replica]["running"][kept] = request
            kept += 1
    replicas[replica]["num_running"] = kept
    if kept == 0:
        replicas[replica]["used_blocks"] = 0
        replicas[replica]["shared_blocks"] = 0


@compiled
def advance_sequence(
    requests: Records,
    replicas: Records,
    bounds: Bounds,
    replica: int,
    request: int,
    chunk: int,
    now: float,
) -> None:
    """Note computed tokens and, if none is left, the token drawn."""
    before = requests[request]["computed"]
    after = before + chunk
    requests[request]["computed"] = after
    counters = replicas[replica]["counters"]
    if requests[request]["farthest"] > before:
        counters[RECOMPUTED] += min(after, requests[request]["farthest"]) - before
    requests[request]["farthest"] = max(requests[request]["farthest"], after)
    if after < requests[request]["prompt"] + requests[request]["generated"]:
        return
    requests[request]["generated"] += 1
    counters[GENERATED] += 1
    if requests[request]["generated"] == 1:
        requests[request]["first"] = now
        waited = now - requests[request]["arrival"]
        replicas[replica]["ttft_counts"][np.searchsorted(bounds.seconds, waited)] += 1
        counters[TTFT_SECONDS] += waited


@compiled
def count_time_per_token(
    requests: Records, replicas: Records, bounds: Bounds, replica: int, request: int
) -> None:
    """The request's mean time per token after its first; a single token has none."""
    tokens = requests[request]["output"] - 1
    if tokens > 0:
        mean = (requests[request]["end"] - requests[request]["first"]) / tokens
        replicas[replica]["tpot_counts"][np.searchsorted(bounds.seconds, mean)] += 1
        replicas[replica]["counters"][TPOT_SECONDS] += mean


@compiled
def finish_sequence(requests: Records, replicas: Records, bounds: Bounds, replica: int, request: int) -> None:
    """Its last token was drawn: it leaves, and its blocks are free."""
    requests[request]["state"] = FINISHED
    requests[request]["end"] = replicas[replica]["clock"]
    replicas[replica]["used_blocks"] -= requests[request]["blocks"]
    requests[request]["blocks"] = 0
    replicas[replica]["counters"][DONE] += 1
    remember_output(replicas, replica, requests[request]["output"])
    replicas[replica]["output_counts"][np.searchsorted(bounds.output, requests[request]["output"])] += 1
    count_time_per_token(requests, replicas, bounds, replica, request)
