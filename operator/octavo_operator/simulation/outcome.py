"""What a run came to: who was served in time, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from octavo_operator.simulation.fleet_state import FINISHED, Floats, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a request may wait for its first token, and for each one after that in the mean."""

    ttft_seconds: float = 2.0
    tpot_seconds: float = 0.08
    percent: float = 95.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One policy on one workload."""

    policy: str
    workload: str
    seed: int
    cold_start_seconds: float
    num_requests: int
    attained_percent: float
    """Of the requests: both objectives kept."""
    ttft_percent: float
    tpot_percent: float
    replica_hours: float
    mean_replicas: float
    reversals_per_hour: float
    aborted: int
    """Generations that a draining pod did not end within its budget."""
    lost: int
    """Requests of engines that died."""
    unanswered: int
    preemptions: int
    lowered_in_blackout: int
    """Times that replicas fell while too few pods could be scraped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Which requests kept which objective."""

    ttft: Floats
    tpot: Floats


def kept_objectives(requests: Records, objective: Objective) -> Kept:
    """By request, 1 or 0; one that was not answered whole kept nothing."""
    finished = requests["state"] == FINISHED
    with np.errstate(invalid="ignore"):
        ttft = requests["first"] - requests["arrival"] <= objective.ttft_seconds
        spread = (requests["end"] - requests["first"]) / np.maximum(1, requests["output"] - 1)
        tpot = (spread <= objective.tpot_seconds) | (requests["output"] == 1)
    return Kept(ttft=(finished & ttft).astype(np.float64), tpot=(finished & tpot).astype(np.float64))


def count_reversals(replicas: Sequence[int]) -> int:
    """Changes of direction in a series of replica counts.

    >>> count_reversals([2, 3, 3, 4, 2, 2, 5])
    2
    """
    rises = [after > before for before, after in pairwise(replicas) if after != before]
    return sum(1 for before, after in pairwise(rises) if after != before)


def percent(kept: Floats) -> float:
    """Share of ones; everything was kept where nothing was asked."""
    return 100.0 * float(kept.mean()) if len(kept) else 100.0
