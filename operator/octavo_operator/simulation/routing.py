"""Which pod answers a request, and the time between two decisions run for all pods at once."""

from __future__ import annotations

from octavo_operator.simulation.compiled import compiled
from octavo_operator.simulation.engine_law import StepLaw
from octavo_operator.simulation.engine_loop import advance
from octavo_operator.simulation.engine_step import enqueue
from octavo_operator.simulation.fleet_state import ARRIVED, Bounds, Floats, Ints, Records


@compiled
def in_flight(replicas: Records, replica: int) -> int:
    """Requests that run or wait there."""
    return int(replicas[replica]["num_running"] + replicas[replica]["num_waiting"])


@compiled
def pick(replicas: Records, ready: Ints, first: float, second: float, choices: int) -> int:
    """A pod at random, or the one with fewer requests in flight of two at random."""
    count = len(ready)
    one = int(ready[min(count - 1, int(first * count))])
    if choices == 1 or count == 1:
        return one
    other = int(ready[min(count - 1, int(second * count))])
    return one if in_flight(replicas, one) <= in_flight(replicas, other) else other


@compiled
def run_until(
    law: StepLaw,
    requests: Records,
    replicas: Records,
    bounds: Bounds,
    factors: Floats,
    stalls: Floats,
    draws: Floats,
    ready: Ints,
    live: Ints,
    cursor: int,
    start: float,
    until: float,
    choices: int,
) -> int:
    """Route what arrives before `until` and run every live pod up to it; the first request not routed.

    Requests that found no ready pod wait in front, and are routed as soon as there is one.
    """
    while len(ready) > 0 and cursor < len(requests) and requests[cursor]["arrival"] < until:
        replica = pick(replicas, ready, draws[cursor, 0], draws[cursor, 1], choices)
        moment = max(start, requests[cursor]["arrival"])
        advance(law, requests, replicas, bounds, factors, stalls, replica, moment)
        enqueue(requests, replicas, replica, cursor)
        replicas[replica]["counters"][ARRIVED] += 1
        cursor += 1
    for replica in live:
        advance(law, requests, replicas, bounds, factors, stalls, replica, until)
    return cursor
