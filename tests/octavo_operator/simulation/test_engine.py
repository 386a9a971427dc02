"""The simulated engine: its times by hand, its laws over random loads, and the same without numba."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from octavo_operator.simulation.compiled import IS_COMPILED
from octavo_operator.simulation.engine_law import A10_8B
from octavo_operator.simulation.fleet_state import (
    ADMITTED,
    CACHED,
    FINISHED,
    GENERATED,
    PREEMPTIONS,
    RECOMPUTED,
    STEPS,
    SUM_CONTEXT,
    SUM_PREFILL,
    SUM_SEQUENCES,
)
from tests.octavo_operator.simulation.small import QUIET, OneReplica, drawn, random_requests, with_pool

LAW = A10_8B.law


def test_request_alone_takes_the_steps_of_the_law() -> None:
    """100 prompt tokens are two tiles of 64; then a token a step, each over one more token of context."""
    replica = OneReplica(QUIET, drawn([1.0], [100], [4]))
    replica.run_to(10.0)
    prefill = (
        LAW.fixed_seconds
        + 128 * LAW.seconds_per_prefill_token
        + 100 * LAW.seconds_per_context_token
        + LAW.seconds_per_sequence
        + 100 * 50 * LAW.seconds_per_prefill_context
    )
    request = replica.requests[0]
    assert request["first"] == pytest.approx(1.0 + prefill)
    decode = 3 * (LAW.fixed_seconds + LAW.seconds_per_sequence) + (101 + 102 + 103) * (
        LAW.seconds_per_context_token
    )
    assert request["end"] == pytest.approx(1.0 + prefill + decode)
    counters = replica.replicas[0]["counters"]
    assert [counters[column] for column in (STEPS, SUM_PREFILL, SUM_CONTEXT, SUM_SEQUENCES)] == [
        4,
        100,
        100 + 101 + 102 + 103,
        4,
    ]


def test_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    replica = OneReplica(QUIET, drawn([0.0], [5000], [1]))
    replica.run_to(10.0)
    assert replica.replicas[0]["counters"][STEPS] == 3
    assert replica.requests[0]["state"] == FINISHED


def test_warm_replica_computes_only_what_its_cache_lacks() -> None:
    requests = drawn([0.0, 5.0], [1000, 1000], [1, 1])
    requests.shared[:] = 128
    requests.reusable[:] = 512
    replica = OneReplica(QUIET, requests)
    replica.run_to(20.0)
    counters = replica.replicas[0]["counters"]
    assert (counters[CACHED], counters[SUM_PREFILL]) == (640, 1000 + 360)


@pytest.mark.parametrize("seed", range(4))
def test_every_request_ends_with_all_its_tokens_and_gives_its_blocks_back(seed: int) -> None:
    """In a pool of 200 blocks, where a request may take all but a few: some are preempted on the way."""
    requests = random_requests(seed, 200, seconds=100)
    replica = OneReplica(with_pool(A10_8B, 240), requests)
    most = 0
    for moment in range(1, 2000, 2):
        replica.run_to(float(moment))
        most = max(most, int(replica.replicas[0]["used_blocks"]))
    counters = replica.replicas[0]["counters"]
    assert (replica.requests["state"] == FINISHED).all()
    assert counters[GENERATED] == requests.output.sum()
    assert counters[ADMITTED] == len(requests.output)
    assert 0 < most <= 240
    assert replica.replicas[0]["used_blocks"] == 0
    assert (counters[RECOMPUTED] > 0) == (counters[PREEMPTIONS] > 0)
    assert (replica.requests["first"] > requests.arrival).all()


def test_small_pool_preempts_the_newest() -> None:
    """Outputs come out far longer than the history expects, so the forecast admits too many."""
    first = drawn([0.0] * 40, [64] * 40, [1] * 40)
    long = drawn([5.0] * 8, [640] * 8, [900] * 8)
    both = drawn(
        [*first.arrival, *long.arrival], [*first.prompt, *long.prompt], [*first.output, *long.output]
    )
    replica = OneReplica(with_pool(QUIET, 420), both)
    replica.run_to(400.0)
    preempted = replica.requests["preempted"][40:]
    assert preempted.sum() > 0
    assert preempted[0] == 0
    assert (replica.requests["state"] == FINISHED).all()


def test_time_cut_into_slices_gives_the_same_history() -> None:
    """Runs of equal steps are computed at once: that must not be seen."""
    requests = random_requests(7, 150, seconds=60)
    whole, sliced = OneReplica(A10_8B, requests), OneReplica(A10_8B, requests)
    whole.run_to(300.0)
    for moment in np.arange(0.01, 300.01, 0.01):
        sliced.run_to(float(moment))
    for name in ("first", "end"):
        assert np.allclose(whole.requests[name], sliced.requests[name])
    assert np.allclose(whole.replicas[0]["counters"], sliced.replicas[0]["counters"])


SCRIPT = """
from octavo_operator.simulation.engine_law import A10_8B
from tests.octavo_operator.simulation.small import OneReplica, random_requests
replica = OneReplica(A10_8B, random_requests(3, 40, seconds=20))
replica.run_to(60.0)
print(replica.requests["end"].sum().hex(), replica.replicas[0]["counters"].sum().hex())
"""


@pytest.mark.skipif(not IS_COMPILED, reason="numba is not installed")
def test_plain_python_gives_the_same_numbers_as_machine_code() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "NUMBA_DISABLE_JIT": switch},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for switch in ("0", "1")
    ]
    assert answers[0] == answers[1]
