"""A simulated replica over time: step after step until a moment.

Most steps only draw one more token for everybody. Runs of them are computed at once, which changes nothing
but the speed of the simulation; while requests wait, admission is tried again every few steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from octavo_operator.simulation.compiled import compiled
from octavo_operator.simulation.engine_law import NOISE_DRAWS, StepLaw
from octavo_operator.simulation.engine_step import choose, finish_sequence, measure, record, step_seconds
from octavo_operator.simulation.fleet_state import (
    GENERATED,
    NOBODY,
    STEP_SECONDS,
    STEPS,
    SUM_CONTEXT,
    SUM_SEQUENCES,
    Bounds,
    Floats,
    Records,
)

RETRY_STEPS: Final = 8
"""Between two attempts to admit a request that did not fit, as long as none that runs has ended."""
MANY_STEPS: Final = 1 << 40


@compiled
def advance(
    law: StepLaw,
    requests: Records,
    replicas: Records,
    bounds: Bounds,
    factors: Floats,
    stalls: Floats,
    replica: int,
    until: float,
) -> None:
    """Run steps until the replica's clock reaches a time; an idle one only moves its clock."""
    chunks = np.empty(law.max_sequences, dtype=np.int64)
    while replicas[replica]["clock"] < until:
        nobody_waits = replicas[replica]["head"] == NOBODY
        if replicas[replica]["num_running"] == 0 and nobody_waits:
            replicas[replica]["clock"] = until
            return
        most = MANY_STEPS if nobody_waits else replicas[replica]["patience"]
        steps = repeatable_steps(law, requests, replicas, replica, most) if most > 0 else 0
        running = replicas[replica]["num_running"]
        if steps > 0:
            made = decode(law, requests, replicas, bounds, factors, stalls, replica, steps, until)
            patience = 0 if nobody_waits else most - made
        else:
            count = choose(law, requests, replicas, bounds, replica, chunks)
            running = replicas[replica]["num_running"]
            seconds = measure(law, requests, replicas, replica, chunks, count)
            pass_step(replicas, factors, stalls, replica, seconds)
            record(requests, replicas, bounds, replica, chunks, count)
            patience = RETRY_STEPS if replicas[replica]["head"] != NOBODY else 0
        ended = replicas[replica]["num_running"] < running
        replicas[replica]["patience"] = 0 if ended else patience


@compiled
def pass_step(replicas: Records, factors: Floats, stalls: Floats, replica: int, seconds: float) -> None:
    """Let a step's time pass, with its noise."""
    draw = (replicas[replica]["num_steps"] + replica * 7919) & (NOISE_DRAWS - 1)
    taken = seconds * factors[draw] + stalls[draw]
    replicas[replica]["clock"] += taken
    replicas[replica]["num_steps"] += 1
    replicas[replica]["counters"][STEPS] += 1
    replicas[replica]["counters"][STEP_SECONDS] += taken


@compiled
def repeatable_steps(law: StepLaw, requests: Records, replicas: Records, replica: int, most: int) -> int:
    """Steps from now on in which all running sequences draw a token, none ends before the last, all fit."""
    count = replicas[replica]["num_running"]
    if count == 0 or count > law.max_batched_tokens:
        return 0
    room = (law.num_blocks - replicas[replica]["used_blocks"]) // count
    steps = min(most, room * law.block_tokens)
    for place in range(count):
        request = replicas[replica]["running"][place]
        generated = requests[request]["generated"]
        if generated == 0 or requests[request]["computed"] < requests[request]["prompt"] + generated - 1:
            return 0
        steps = min(steps, requests[request]["output"] - generated)
    return int(steps)


@compiled
def decode(
    law: StepLaw,
    requests: Records,
    replicas: Records,
    bounds: Bounds,
    factors: Floats,
    stalls: Floats,
    replica: int,
    steps: int,
    until: float,
) -> int:
    """Make these steps, or those of them that begin before `until`; how many were made."""
    count = replicas[replica]["num_running"]
    context = 0
    for place in range(count):
        context += requests[replicas[replica]["running"][place]]["computed"] + 1
    counters = replicas[replica]["counters"]
    made = 0
    while made < steps and replicas[replica]["clock"] < until:
        pass_step(replicas, factors, stalls, replica, step_seconds(law, 0, context, count, 0.0))
        counters[SUM_CONTEXT] += context
        context += count
        made += 1
    counters[SUM_SEQUENCES] += made * count
    counters[GENERATED] += made * count
    record_decoded(law, requests, replicas, bounds, replica, made)
    return made


@compiled
def record_decoded(
    law: StepLaw, requests: Records, replicas: Records, bounds: Bounds, replica: int, made: int
) -> None:
    """Note so many tokens for everybody that runs; those that reach their end leave."""
    kept = 0
    for place in range(replicas[replica]["num_running"]):
        request = replicas[replica]["running"][place]
        requests[request]["computed"] += made
        requests[request]["generated"] += made
        requests[request]["farthest"] = max(requests[request]["farthest"], requests[request]["computed"])
        own = requests[request]["computed"] - requests[request]["shared"]
        needed = -(-own // law.block_tokens) - requests[request]["blocks"]
        requests[request]["blocks"] += needed
        replicas[replica]["used_blocks"] += needed
        if requests[request]["generated"] >= requests[request]["output"]:
            finish_sequence(requests, replicas, bounds, replica, request)
        else:
            replicas[replica]["running"][kept] = request
            kept += 1
    replicas[replica]["num_running"] = kept
    if kept == 0:
        replicas[replica]["used_blocks"] = 0
        replicas[replica]["shared_blocks"] = 0
