"""The baselines, against the arithmetic of their documentation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octavo_operator.simulation.fleet_state import new_replicas
from octavo_operator.simulation.observing import Observation, PodSight, Snapshot
from octavo_operator.simulation.policies.horizontal import (
    hpa_cache,
    hpa_queue,
    keda_in_flight,
    keda_queue,
)


def snapshot(*, running: int = 0, waiting: int = 0, used_blocks: int = 0) -> Snapshot:
    record = new_replicas(1)[0]
    return Snapshot(
        at=0.0,
        running=running,
        waiting=waiting,
        used_blocks=used_blocks,
        counters=record["counters"],
        uncached_counts=record["uncached_counts"],
        output_counts=record["output_counts"],
        ttft_counts=record["ttft_counts"],
        tpot_counts=record["tpot_counts"],
    )


def seen(now: float, replicas: int, *snapshots: Snapshot | None) -> Observation:
    pods = tuple(
        PodSight(name=f"pod-{index}", state="ready", created=0.0, ready_since=0.0, snapshot=one)
        for index, one in enumerate(snapshots)
    )
    return Observation(now=now, replicas=replicas, pods=pods)


@pytest.mark.parametrize(
    ("in_flight", "replicas", "wanted"),
    [
        pytest.param(30, 3, 3, id="on target"),
        pytest.param(32, 3, 3, id="within the tolerance of a tenth"),
        pytest.param(41, 3, 5, id="above: the sum over the target, rounded up"),
        pytest.param(500, 3, 7, id="up by four at once where that is more than double"),
        pytest.param(5000, 30, 60, id="up by all there are at once"),
    ],
)
def test_keda_divides_the_sum_by_its_target(in_flight: int, replicas: int, wanted: int) -> None:
    wish = keda_in_flight(10).decide(seen(0.0, replicas, snapshot(running=in_flight)))
    assert wish.replicas == wanted


def test_pods_that_still_load_soften_a_rise() -> None:
    """A mean of 20 over one pod of four, at 10 wanted: three that are not ready count as idle, so no rise."""
    wish = hpa_queue(10).decide(seen(0.0, 4, snapshot(waiting=20)))
    assert wish.replicas == 4


def test_cache_use_is_a_mean_over_pods() -> None:
    pods = [snapshot(used_blocks=900), snapshot(used_blocks=1000)]
    assert hpa_cache(70, num_blocks=1000).decide(seen(0.0, 2, *pods)).replicas == 3


def test_hpa_falls_only_to_the_most_of_five_minutes() -> None:
    policy = keda_queue(5)
    policy.decide(seen(0.0, 6, snapshot(waiting=30)))
    calm = snapshot(waiting=5)
    assert policy.decide(seen(285.0, 6, calm)).replicas == 6
    assert policy.decide(seen(315.0, 6, calm)).replicas == 1


def test_hpa_keeps_its_number_without_a_metric() -> None:
    assert keda_queue(5).decide(seen(0.0, 6, None, None)).replicas == 6


def test_pod_that_does_not_answer_is_not_in_a_sum() -> None:
    """As the sum of a Prometheus query: the reason why a baseline can fall in a partial blackout."""
    policy = keda_in_flight(10)
    assert policy.decide(seen(0.0, 6, snapshot(running=30), None)).replicas == 6
    later = replace(snapshot(running=30), at=400.0)
    assert policy.decide(seen(400.0, 6, later, None)).replicas == 3
    assert np.isclose(policy.target, 10)
