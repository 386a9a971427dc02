"""Small workloads and a quiet engine, whose times can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from octavo_operator.simulation.engine_law import A10_8B, Disturbance, SimulatedEngine
from octavo_operator.simulation.fleet_state import new_replicas, new_requests
from octavo_operator.simulation.traffic import Drawn
from octavo_operator.simulation.workloads import Workload

QUIET = replace(A10_8B, disturbance=Disturbance(noise=0.0, stalls_per_step=0.0))


def drawn(arrival: Sequence[float], prompt: Sequence[int], output: Sequence[int]) -> Drawn:
    """Requests without any shared prefix."""
    return Drawn(
        arrival=np.array(arrival, dtype=np.float64),
        prompt=np.array(prompt, dtype=np.int64),
        output=np.array(output, dtype=np.int64),
        shared=np.zeros(len(arrival), dtype=np.int64),
        reusable=np.zeros(len(arrival), dtype=np.int64),
    )


def random_requests(seed: int, count: int, *, seconds: float) -> Drawn:
    random = np.random.default_rng(seed)
    return drawn(
        np.sort(random.random(count) * seconds).tolist(),
        random.integers(1, 3000, count).tolist(),
        random.integers(1, 300, count).tolist(),
    )


def workload(requests: Drawn, *, seconds: float, name: str = "small") -> Workload:
    return Workload(name=name, seconds=seconds, requests=requests)


def with_pool(engine: SimulatedEngine, num_blocks: int) -> SimulatedEngine:
    return replace(engine, law=engine.law._replace(num_blocks=num_blocks))


class OneReplica:
    """One engine and its requests, driven without any pod around it."""

    def __init__(self, engine: SimulatedEngine, requests: Drawn) -> None:
        from octavo_operator.simulation.engine_law import noise_table
        from octavo_operator.simulation.fleet_state import histogram_bounds

        self.law = engine.law
        self.requests = new_requests(
            requests.arrival, requests.prompt, requests.output, requests.shared, requests.reusable
        )
        self.replicas = new_replicas(1)
        self.bounds = histogram_bounds()
        self.factors, self.stalls = noise_table(engine.disturbance, 0)
        self.cursor = 0
        self.now = 0.0

    def run_to(self, until: float) -> None:
        from octavo_operator.simulation.routing import run_until

        only = np.zeros(1, dtype=np.int64)
        draws = np.zeros((len(self.requests), 2))
        self.cursor = run_until(
            self.law,
            self.requests,
            self.replicas,
            self.bounds,
            self.factors,
            self.stalls,
            draws,
            only,
            only,
            self.cursor,
            self.now,
            until,
            1,
        )
        self.now = until
