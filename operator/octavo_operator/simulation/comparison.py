"""The planner on one load, beside what people use today with its target tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from octavo_operator.api.spec import Autoscaling
from octavo_operator.simulation.observing import Policy
from octavo_operator.simulation.outcome import Outcome
from octavo_operator.simulation.policies.horizontal import hpa_cache, keda_in_flight
from octavo_operator.simulation.policies.planner import Planner
from octavo_operator.simulation.policies.static import Static
from octavo_operator.simulation.run import Moment, Run, Setting, simulate
from octavo_operator.simulation.workloads import Workload

TARGET_SHARES: Final = (0.15, 0.3, 0.5, 0.7)
"""Requests in flight that KEDA aims at, of the sequences that a replica can run at once."""
TYPICAL_TOKENS: Final = 1024
"""Of a sequence, for these targets only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What each policy did and came to."""

    runs: tuple[Run, ...]
    """The planner's first."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(run.outcome for run in self.runs)

    @property
    def planner(self) -> Run:
        return self.runs[0]

    @property
    def changes(self) -> tuple[Moment, ...]:
        """The planner's decisions that changed the number."""
        pairs = pairwise(self.planner.moments)
        return tuple(after for before, after in pairs if after.replicas != before.replicas)


def compare(
    workload: Workload,
    setting: Setting,
    spec: Autoscaling,
    *,
    on_progress: Callable[[str, float], None] = lambda _name, _share: None,
) -> Comparison:
    """Run the planner, then the baselines: KEDA with several targets, HPA on the KV cache, a fixed number."""
    planner = Planner(spec=spec, engine=setting.engine, prior=setting.engine.prior)
    ours = _run(workload, setting, planner, on_progress)
    others = (_run(workload, setting, policy, on_progress) for policy in _baselines(setting, ours))
    return Comparison(runs=(ours, *others))


def _baselines(setting: Setting, ours: Run) -> list[Policy]:
    """Targets by what a replica can run at once; a fixed number as high as the planner ever went."""
    law = setting.engine.law
    sequences = min(law.max_sequences, max(1, law.num_blocks * law.block_tokens // TYPICAL_TOKENS))
    targets = sorted({max(1, round(share * sequences)) for share in TARGET_SHARES})
    most = max((moment.replicas for moment in ours.moments), default=setting.max_replicas)
    return [
        *(keda_in_flight(float(target)) for target in targets),
        hpa_cache(70, law.num_blocks),
        Static(replicas=most),
    ]


def _run(
    workload: Workload, setting: Setting, policy: Policy, on_progress: Callable[[str, float], None]
) -> Run:
    passed = 0.0

    def count(seconds: float) -> None:
        nonlocal passed
        before, passed = passed, passed + seconds
        if int(100 * before / workload.seconds) != int(100 * passed / workload.seconds):
            on_progress(policy.name, min(1.0, passed / workload.seconds))

    run = simulate(workload, setting, policy, on_progress=count)
    on_progress(policy.name, 1.0)
    return run
