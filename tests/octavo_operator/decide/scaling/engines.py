"""Engines that follow the step model exactly, so that a test can say what the planner should find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from octavo import engine_contract as contract
from octavo.step_model import StepCosts
from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling import (
    EngineReading,
    Histogram,
    PlannerState,
    PodState,
    Reading,
    ScaledPod,
    ScalingDecision,
    ServiceView,
    StepSums,
    Unknown,
    decide_replicas,
)

COSTS = StepCosts(
    base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
)
"""An 8B model on a small accelerator, roughly."""
PROMPT, OUTPUT = 500.0, 200.0
LATENCY_BOUNDS = tuple(0.01 * 1.1**power for power in range(89))
OUTPUT_BOUNDS = tuple(float(bound) for bound in contract.OUTPUT_BOUNDS)
PROMPT_BOUNDS = tuple(float(factor << power) for power in range(3, 14) for factor in (2, 3))


def make_policy(**changes: Any) -> Autoscaling:
    return Autoscaling.model_validate({"minReplicas": 1, "maxReplicas": 8, **changes})


def spread(bounds: tuple[float, ...], value: float, count: float) -> Histogram:
    """So many times the same value."""
    counts = (*(count if bound >= value else 0.0 for bound in bounds), count)
    return Histogram(bounds=bounds, counts=counts)


def make_reading(**changes: Any) -> EngineReading:
    """An idle engine that was just started."""
    values: dict[str, Any] = {
        "at": 0.0,
        "running": 0.0,
        "waiting": 0.0,
        "kv_tokens_referenced": 0.0,
        "kv_tokens_total": 40_000.0,
        "max_sequences": 64.0,
        "max_step_tokens": 512.0,
        "arrived": 0.0,
        "admitted": 0.0,
        "finished": 0.0,
        "prompt_tokens": 0.0,
        "cached_tokens": 0.0,
        "generated_tokens": 0.0,
        "recomputed_tokens": 0.0,
        "preemptions": 0.0,
        "steps": StepSums(steps=0, seconds=0, prefill_tokens=0, context_tokens=0, sequences=0),
        "prompts": spread(PROMPT_BOUNDS, PROMPT, 0.0),
        "ttft": spread(LATENCY_BOUNDS, 0.5, 0.0),
        "tpot": spread(LATENCY_BOUNDS, 0.04, 0.0),
        "outputs": spread(OUTPUT_BOUNDS, OUTPUT, 0.0),
    }
    return EngineReading(**{**values, **changes})


@dataclass
class Engine:
    """One pod whose counters go on from round to round."""

    name: str
    reading: EngineReading = field(default_factory=make_reading)
    state: PodState = "ready"
    created_at: float = 0.0
    ready_at: float | None = 0.0
    reason: str = ""
    """Why it cannot be read; empty where it can."""

    def serve(
        self,
        seconds: float,
        rate: float,
        *,
        preempted: float = 0.0,
        late: float = 0.0,
        waiting: float = 0.0,
        costs: StepCosts = COSTS,
    ) -> None:
        """Requests at this rate for so many seconds, of which some are put back or get a late first token."""
        before, count = self.reading, rate * seconds
        work = costs.prefill_token_seconds * PROMPT + OUTPUT * (
            costs.sequence_seconds + costs.context_token_seconds * 600
        )
        step = costs.base_seconds / max(0.05, 1.0 - rate * work)
        steps, running = seconds / step, min(rate * OUTPUT * step, before.max_sequences)
        self.reading = replace(
            before,
            at=before.at + seconds,
            running=running,
            waiting=waiting,
            kv_tokens_referenced=running * 600,
            arrived=before.arrived + count,
            admitted=before.admitted + count,
            finished=before.finished + count,
            prompt_tokens=before.prompt_tokens + PROMPT * count,
            generated_tokens=before.generated_tokens + OUTPUT * count,
            preemptions=before.preemptions + preempted,
            steps=StepSums(
                steps=before.steps.steps + steps,
                seconds=before.steps.seconds + seconds,
                prefill_tokens=before.steps.prefill_tokens + PROMPT * count,
                context_tokens=before.steps.context_tokens + steps * running * 600,
                sequences=before.steps.sequences + steps * running,
            ),
            prompts=added(before.prompts, spread(PROMPT_BOUNDS, PROMPT, count)),
            ttft=added(
                added(before.ttft, spread(LATENCY_BOUNDS, 0.5, count * (1 - late))),
                spread(LATENCY_BOUNDS, 9.0, count * late),
            ),
            tpot=added(before.tpot, spread(LATENCY_BOUNDS, step, count)),
            outputs=added(before.outputs, spread(OUTPUT_BOUNDS, OUTPUT, count)),
        )

    def pod(self) -> ScaledPod:
        reading: Reading = Unknown(reason=self.reason) if self.reason else self.reading
        return ScaledPod(
            name=self.name,
            state=self.state,
            created_at=self.created_at,
            ready_at=self.ready_at if self.state == "ready" else None,
            reading=reading if self.state == "ready" else Unknown(reason="not ready"),
        )


def added(one: Histogram, other: Histogram) -> Histogram:
    counts = tuple(left + right for left, right in zip(one.counts, other.counts, strict=True))
    return Histogram(bounds=one.bounds, counts=counts)


def make_view(pods: Iterable[ScaledPod], **changes: Any) -> ServiceView:
    seen = tuple(pods)
    values: dict[str, Any] = {
        "pods": seen,
        "replicas": len(seen),
        "in_rollout": False,
        "engine": "commit image device",
        "prior": COSTS,
        "max_model_len": 4096,
    }
    return ServiceView(**{**values, **changes})


@dataclass
class Service:
    """A service that does at once what the planner says; new pods start in no time unless told otherwise."""

    policy: Autoscaling = field(default_factory=make_policy)
    replicas: int = 1
    state: PlannerState = field(default_factory=PlannerState)
    now: float = 0.0
    interval: float = 10.0
    follows: bool = True
    engines: list[Engine] = field(default_factory=list)
    history: list[tuple[float, ScalingDecision]] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)
    """What else the planner sees."""

    def __post_init__(self) -> None:
        self._fit()

    def _fit(self) -> None:
        while len(self.engines) < self.replicas:
            started = make_reading(at=self.now)
            name = f"pod-{len(self.history)}-{len(self.engines)}"
            self.engines.append(Engine(name=name, reading=started, created_at=self.now, ready_at=self.now))
        del self.engines[self.replicas :]

    def run(
        self, seconds: float, rate: float, *, each: Callable[[Engine], None] | None = None, **load: Any
    ) -> ScalingDecision:
        """Serve so many requests a second, all pods together, and decide after each interval."""
        end = self.now + seconds
        while self.now < end - 1e-6:
            self.now += self.interval
            serving = [one for one in self.engines if one.state == "ready"]
            for engine in serving:
                engine.serve(self.interval, rate / len(serving), **load)
                if each is not None:
                    each(engine)
            self.decide()
        return self.history[-1][1]

    def decide(self) -> ScalingDecision:
        view = make_view((one.pod() for one in self.engines), **{"replicas": self.replicas, **self.view})
        decision, self.state = decide_replicas(now=self.now, policy=self.policy, view=view, state=self.state)
        self.history.append((self.now, decision))
        if self.follows:
            self.replicas = decision.replicas
            self._fit()
        return decision

    @property
    def reasons(self) -> list[str]:
        return [decision.reason for _, decision in self.history]
