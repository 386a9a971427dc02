"""What would become of the running sequences with fewer replicas, and which pods to give up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from octavo.capacity import Capacity
from octavo.replica_load import Objective, Traffic
from octavo.step_model import StepCosts
from octavo_operator.decide.scaling.readings import EngineReading
from octavo_operator.decide.scaling.view import ScaledPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What all replicas carry together."""

    rate: float
    """Requests a second: the highest mean of a minute lately."""
    sequences: float
    """Running and waiting."""
    kv_tokens: float


def load_of(readings: Iterable[EngineReading], *, rate: float) -> Load:
    seen = list(readings)
    return Load(
        rate=rate,
        sequences=sum(one.sequences for one in seen),
        kv_tokens=sum(one.kv_tokens_referenced for one in seen),
    )


def find_overload(
    load: Load,
    replicas: int,
    *,
    costs: StepCosts,
    traffic: Traffic,
    capacity: Capacity,
    replica_rate: float,
    kv_tokens: float,
    objective: Objective,
) -> str:
    """What would be too much for so many replicas with the load of now; empty where nothing would."""
    sequences, rate = load.sequences / replicas, load.rate / replicas
    if sequences > capacity.sequences:
        return f"{sequences:.0f} sequences on each, {capacity.sequences:.0f} fit"
    if load.kv_tokens / replicas > kv_tokens:
        return f"{load.kv_tokens / replicas:.0f} tokens of cache on each, {kv_tokens:.0f} fit"
    most = max(capacity.rate, replica_rate)
    if rate > most:
        return f"{rate:.2f} req/s on each, {most:.2f} is the most"
    if capacity.infeasible:
        return ""
    tpot = _step_with(sequences, rate, costs, traffic)
    if tpot > objective.tpot_seconds:
        return f"TPOT {1000 * tpot:.0f} ms on each, {1000 * objective.tpot_seconds:.0f} ms is the objective"
    return ""


def _step_with(sequences: float, rate: float, costs: StepCosts, traffic: Traffic) -> float:
    """The step that computes so many sequences, and the prompts that arrive while it does."""
    decode = costs.step_seconds(
        prefill_tokens=0, context_tokens=sequences * traffic.context_tokens, sequences=sequences
    )
    left = 1.0 - rate * costs.prefill_token_seconds * traffic.prompts.mean
    return decode / left if left > 0 else math.inf


def choose_victims(pods: Iterable[ScaledPod], number: int, *, output_tokens: float) -> tuple[str, ...]:
    """The ready pods with the fewest tokens left to generate; one that does not answer may have many."""
    ready = [pod for pod in pods if pod.state == "ready"]
    ranked = sorted(ready, key=lambda pod: (_tokens_left(pod, output_tokens), pod.name))
    return tuple(pod.name for pod in ranked[: max(0, number)])


def _tokens_left(pod: ScaledPod, output_tokens: float) -> float:
    """No engine knows when a sequence ends: each counts as a usual one."""
    reading = pod.reading
    if not isinstance(reading, EngineReading):
        return math.inf
    return reading.sequences * output_tokens
