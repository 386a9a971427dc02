"""What the planner would need for a load before it has measured anything."""

from __future__ import annotations

import pytest

from octavo_operator.api.spec import Autoscaling
from octavo_operator.simulation.engine_law import A10_8B
from octavo_operator.simulation.first_need import first_need, remembered
from octavo_operator.simulation.workloads import draw_workload
from tests.octavo_operator.simulation.small import drawn

POLICY = Autoscaling(max_replicas=10)


def test_requests_are_remembered_as_the_planner_counts_them() -> None:
    """Of 40 steps of one sequence, 10 look back on 105 tokens in the mean and 30 on 315."""
    requests = drawn([0.0, 1.0], [100, 300], [10, 30])
    requests.shared[:] = 16
    requests.reusable[1] = 64
    memory = remembered(requests)
    assert (memory.prompt_tokens, memory.cached_tokens, memory.generated_tokens) == (400, 96, 40)
    assert (memory.context_tokens, memory.decoded) == (10 * 105 + 30 * 315, 40)
    assert (memory.kv_tokens, memory.running) == (memory.context_tokens - 40 * 16, 40)
    assert memory.counts == tuple((bound >= 84) + (bound >= 220) for bound in (*memory.bounds, float("inf")))
    assert memory.output_counts[-1] == 2


def test_longer_prompts_need_more_replicas() -> None:
    short, long = (
        first_need(drawn([0.0] * 20, [prompt] * 20, [100] * 20), A10_8B, POLICY, cold_start_seconds=180)
        for prompt in (200, 2000)
    )
    assert long.work > 1.5 * short.work


@pytest.mark.parametrize("shape", ["conv", "code"])
def test_slower_start_needs_more_headroom(shape: str) -> None:
    requests = draw_workload(shape, 0).requests
    quick, slow = (first_need(requests, A10_8B, POLICY, cold_start_seconds=seconds) for seconds in (0, 900))
    assert slow.work * slow.headroom > 1.05 * quick.work * quick.headroom
