"""What the planner would need for a load before it has measured anything: its prior, and the requests.

The need grows with the rate alone, so what one request a second needs tells the rate that any number of
replicas is enough for.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from octavo.replica_load import ReplicaLimits
from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling import PlannerState, ServiceView
from octavo_operator.decide.scaling.demand import DemandMemory, usual_growths
from octavo_operator.decide.scaling.observing import Round, objective_of
from octavo_operator.decide.scaling.sizing import Need, size_up
from octavo_operator.decide.scaling.traffic import TrafficMemory
from octavo_operator.simulation.engine_law import SimulatedEngine
from octavo_operator.simulation.fleet_state import OUTPUT_BOUNDS, UNCACHED_BOUNDS, Ints
from octavo_operator.simulation.traffic import Drawn

ONE_A_SECOND: Final = Round(
    fresh={},
    unknown=0,
    rate=1.0,
    sequences=None,
    is_settled=False,
    is_dark=False,
    is_blackout=False,
    blind_seconds=0.0,
)


def first_need(
    requests: Drawn, engine: SimulatedEngine, policy: Autoscaling, *, cold_start_seconds: float
) -> Need:
    """What one such request a second needs, as the planner sizes it: `work × headroom` replicas."""
    law = engine.law
    view = ServiceView(
        pods=(),
        replicas=0,
        in_rollout=False,
        engine=engine.name,
        prior=engine.prior,
        max_model_len=engine.max_model_len,
    )
    state = PlannerState(
        traffic=remembered(requests),
        limits=ReplicaLimits(
            kv_tokens=law.num_blocks * law.block_tokens, max_sequences=float(law.max_sequences)
        ),
        step_tokens=float(law.max_batched_tokens),
        demand=DemandMemory(growths=usual_growths(cold_start_seconds)),
    )
    need = size_up(ONE_A_SECOND, view=view, state=state, objective=objective_of(policy))
    assert need is not None, "limits are known"
    return need


def remembered(requests: Drawn) -> TrafficMemory:
    """The memory of a planner that has seen each request once, from its first token to its last.

    While it decodes, a sequence looks back on its prompt and, in the mean, on half of its output.
    """
    prompt, output = requests.prompt.astype(np.float64), requests.output.astype(np.float64)
    cached = requests.shared + requests.reusable
    decoded = float(output.sum())
    context = float((output * (prompt + output / 2)).sum())
    return TrafficMemory(
        admitted=float(len(prompt)),
        finished=float(len(prompt)),
        prompt_tokens=float(prompt.sum()),
        cached_tokens=float(cached.sum()),
        generated_tokens=decoded,
        context_tokens=context,
        decoded=decoded,
        kv_tokens=context - float((output * requests.shared).sum()),  # shared blocks are held once for all
        running=decoded,
        bounds=UNCACHED_BOUNDS,
        counts=_cumulative(requests.prompt - cached, UNCACHED_BOUNDS),
        output_bounds=OUTPUT_BOUNDS,
        output_counts=_cumulative(requests.output, OUTPUT_BOUNDS),
    )


def _cumulative(values: Ints, bounds: tuple[float, ...]) -> tuple[float, ...]:
    """As a histogram's buckets: how many are at most each bound, and how many there are."""
    within = np.searchsorted(np.sort(values), bounds, side="right")
    return (*within.astype(np.float64).tolist(), float(len(values)))
