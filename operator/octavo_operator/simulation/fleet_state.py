"""All mutable numbers of a simulation as two arrays of records, so that the inner loop can be compiled.

Requests and replicas are indices into them. A replica's waiting requests are a linked list through
`follower`; its running ones are a row of their indices, oldest first.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.engine_contract import OUTPUT_BOUNDS as CONTRACT_OUTPUT_BOUNDS
from octavo.engine_contract import UNCACHED_PROMPT_BOUNDS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = NDArray[Any]

NOBODY: Final = -1
HISTORY: Final = 256
"""Finished outputs that a replica's forecast of lengths remembers."""
MOST_SEQUENCES: Final = 512
"""Room in a replica's record for those that run; an engine's own limit may be lower."""

# States of a request
PENDING: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
FINISHED: Final = 3
ABORTED: Final = 4

# Columns of a replica's counters
ARRIVED: Final = 0
ADMITTED: Final = 1
DONE: Final = 2
PROMPT: Final = 3
CACHED: Final = 4
GENERATED: Final = 5
RECOMPUTED: Final = 6
PREEMPTIONS: Final = 7
STEPS: Final = 8
STEP_SECONDS: Final = 9
SUM_PREFILL: Final = 10
SUM_CONTEXT: Final = 11
SUM_SEQUENCES: Final = 12
SUM_UNCACHED_SQUARED: Final = 13
TTFT_SECONDS: Final = 14
TPOT_SECONDS: Final = 15
NUM_COUNTERS: Final = 16

SECONDS_BOUNDS: Final = (*(float(f"{0.01 * 1.1**index:.4g}") for index in range(88)), 40.0)
"""Of the histograms of TTFT and TPOT: a tenth apart, as the engine's; one more bucket has no bound."""
UNCACHED_BOUNDS: Final = tuple(float(bound) for bound in UNCACHED_PROMPT_BOUNDS)
OUTPUT_BOUNDS: Final = tuple(float(bound) for bound in CONTRACT_OUTPUT_BOUNDS)

REQUEST: Final = np.dtype(
    [
        ("arrival", np.float64),
        ("prompt", np.int64),
        ("output", np.int64),
        ("shared", np.int64),  # prompt tokens that all requests of a replica share, whole blocks
        ("reusable", np.int64),  # further prompt tokens in a warm replica's prefix cache, whole blocks
        ("state", np.int64),
        ("replica", np.int64),
        ("computed", np.int64),
        ("farthest", np.int64),  # most tokens ever computed: what is computed below it again is recomputed
        ("generated", np.int64),
        ("blocks", np.int64),
        ("first", np.float64),
        ("end", np.float64),
        ("preempted", np.int64),
        ("follower", np.int64),
    ]
)
REPLICA: Final = np.dtype(
    [
        ("clock", np.float64),  # when its present step ends
        ("num_steps", np.int64),
        ("running", np.int64, (MOST_SEQUENCES,)),
        ("num_running", np.int64),
        ("head", np.int64),
        ("tail", np.int64),
        ("num_waiting", np.int64),
        ("patience", np.int64),  # steps before the head of the queue, which did not fit, is tried again
        ("used_blocks", np.int64),  # referenced, the shared prefix once
        ("shared_blocks", np.int64),
        ("outputs", np.int64, (HISTORY,)),  # finished lengths, the oldest overwritten first
        ("outputs_sorted", np.int64, (HISTORY,)),
        ("num_outputs", np.int64),
        ("counters", np.float64, (NUM_COUNTERS,)),
        ("uncached_counts", np.int64, (len(UNCACHED_BOUNDS) + 1,)),
        ("output_counts", np.int64, (len(OUTPUT_BOUNDS) + 1,)),
        ("ttft_counts", np.int64, (len(SECONDS_BOUNDS) + 1,)),
        ("tpot_counts", np.int64, (len(SECONDS_BOUNDS) + 1,)),
    ]
)


class Bounds(NamedTuple):
    """Upper bounds of the histograms' buckets, for the inner loop."""

    uncached: Floats
    output: Floats
    seconds: Floats


def histogram_bounds() -> Bounds:
    """Those that the engine exports."""
    return Bounds(
        uncached=np.array(UNCACHED_BOUNDS), output=np.array(OUTPUT_BOUNDS), seconds=np.array(SECONDS_BOUNDS)
    )


def new_requests(arrival: Floats, prompt: Ints, output: Ints, shared: Ints, reusable: Ints) -> Records:
    """All still to come."""
    requests = np.zeros(len(arrival), dtype=REQUEST)
    given = {"arrival": arrival, "prompt": prompt, "output": output, "shared": shared, "reusable": reusable}
    for name, values in given.items():
        requests[name] = values
    requests["first"] = requests["end"] = np.nan
    requests["replica"] = requests["follower"] = NOBODY
    return requests


def new_replicas(size: int) -> Records:
    """All idle and empty."""
    replicas = np.zeros(size, dtype=REPLICA)
    replicas["head"] = replicas["tail"] = NOBODY
    return replicas
