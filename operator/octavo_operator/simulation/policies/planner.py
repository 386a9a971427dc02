"""Octavo's own planner, run exactly as the operator runs it: readings in, a decision out, a state kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from octavo.step_model import StepCosts
from octavo_operator.api.spec import Autoscaling
from octavo_operator.api.spec.scaling import ServiceLevelObjective
from octavo_operator.decide.scaling import (
    EngineReading,
    Histogram,
    PlannerState,
    ScaledPod,
    ServiceView,
    StepSums,
    Unknown,
    decide_replicas,
)
from octavo_operator.simulation import fleet_state as columns
from octavo_operator.simulation.engine_law import SimulatedEngine, StepLaw
from octavo_operator.simulation.fleet_state import OUTPUT_BOUNDS, SECONDS_BOUNDS, UNCACHED_BOUNDS, Ints
from octavo_operator.simulation.observing import Observation, PodSight, Snapshot, Wish
from octavo_operator.simulation.outcome import Objective

SILENT: Final = Unknown(reason="timed out")


def reading_of(snapshot: Snapshot, law: StepLaw) -> EngineReading:
    """The scraped metrics of one simulated engine, as the operator's scraper would parse them."""
    counters = snapshot.counters.tolist()
    return EngineReading(
        at=snapshot.at,
        running=snapshot.running,
        waiting=snapshot.waiting,
        kv_tokens_referenced=snapshot.used_blocks * law.block_tokens,
        kv_tokens_total=law.num_blocks * law.block_tokens,
        max_sequences=law.max_sequences,
        max_step_tokens=law.max_batched_tokens,
        arrived=counters[columns.ARRIVED],
        admitted=counters[columns.ADMITTED],
        finished=counters[columns.DONE],
        prompt_tokens=counters[columns.PROMPT],
        cached_tokens=counters[columns.CACHED],
        generated_tokens=counters[columns.GENERATED],
        recomputed_tokens=counters[columns.RECOMPUTED],
        preemptions=counters[columns.PREEMPTIONS],
        steps=StepSums(
            steps=counters[columns.STEPS],
            seconds=counters[columns.STEP_SECONDS],
            prefill_tokens=counters[columns.SUM_PREFILL],
            context_tokens=counters[columns.SUM_CONTEXT],
            sequences=counters[columns.SUM_SEQUENCES],
        ),
        prompts=_histogram(UNCACHED_BOUNDS, snapshot.uncached_counts),
        outputs=_histogram(OUTPUT_BOUNDS, snapshot.output_counts),
        ttft=_histogram(SECONDS_BOUNDS, snapshot.ttft_counts),
        tpot=_histogram(SECONDS_BOUNDS, snapshot.tpot_counts),
    )


def _histogram(bounds: tuple[float, ...], counts: Ints) -> Histogram:
    return Histogram(bounds=bounds, counts=tuple(np.cumsum(counts).tolist()))


def costs_off_by(law: StepLaw, factor: float) -> StepCosts:
    """The engine's own costs, all wrong by one factor."""
    return StepCosts(
        base_seconds=law.fixed_seconds * factor,
        prefill_token_seconds=law.seconds_per_prefill_token * factor,
        context_token_seconds=law.seconds_per_context_token * factor,
        sequence_seconds=law.seconds_per_sequence * factor,
    )


def policy_for(objective: Objective, *, min_replicas: int, max_replicas: int) -> Autoscaling:
    """The spec that a user would write."""
    return Autoscaling(
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        slo=ServiceLevelObjective(
            ttft_milliseconds=round(1000 * objective.ttft_seconds),
            tpot_milliseconds=round(1000 * objective.tpot_seconds),
            objective_percent=round(objective.percent),
        ),
    )


@dataclass(slots=True, kw_only=True)
class Planner:
    """The policy, with the state that the operator would keep."""

    spec: Autoscaling
    engine: SimulatedEngine
    prior: StepCosts
    name: str = "Octavo"
    interval_seconds: float = 10.0
    learns: bool = True
    """Whether it may correct its prior; if not, it has to live with it."""
    state: PlannerState = field(default_factory=PlannerState)

    def decide(self, observation: Observation) -> Wish:
        """One round of the operator."""
        view = ServiceView(
            pods=tuple(self._pod(sight) for sight in observation.pods),
            replicas=observation.replicas,
            in_rollout=False,
            engine=self.engine.name,
            prior=self.prior,
            max_model_len=self.engine.max_model_len,
        )
        decision, self.state = decide_replicas(
            now=observation.now, policy=self.spec, view=view, state=self.state
        )
        if not self.learns:
            self.state = replace(self.state, learned={})
        return Wish(
            replicas=decision.replicas,
            victims=decision.victims,
            message=f"{decision.reason}: {decision.message}",
        )

    def _pod(self, sight: PodSight) -> ScaledPod:
        reading: EngineReading | Unknown = SILENT
        if sight.state == "ready" and sight.snapshot is not None:
            reading = reading_of(sight.snapshot, self.engine.law)
        return ScaledPod(
            name=sight.name,
            state=sight.state,
            created_at=sight.created,
            ready_at=sight.ready_since,
            reading=reading,
        )
