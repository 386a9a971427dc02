"""After the llm-d workload variant autoscaler, version 2: tokens of KV cache demanded against those held.

Source: llm-d-incubation/workload-variant-autoscaler, "saturation scaling, V2 (token-based)". Demand is the
tokens in use and those of waiting prompts; a replica's capacity is a share of its KV cache, or what it held
when requests last queued there, if that was less. Up when demand exceeds 85 % of the supply, pods on their
way included; down when the rest would stay below 70 %. This is our reading of it, not its code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from octavo_operator.simulation.engine_law import StepLaw
from octavo_operator.simulation.fleet_state import ADMITTED, PROMPT
from octavo_operator.simulation.observing import Observation, Snapshot, Wish

CACHE_SHARE: Final = 0.80
UP_RATIO: Final = 0.85
DOWN_RATIO: Final = 0.70
QUEUE_LENGTH: Final = 5
"""Waiting requests at which a replica counts as saturated by computing."""
USUAL_PROMPT_TOKENS: Final = 1000.0


@dataclass(slots=True, kw_only=True)
class Saturation:
    """The analyzer and its scaling rule."""

    law: StepLaw
    name: str = "WVA-V2-like"
    interval_seconds: float = 30.0
    computed_capacity: float = math.inf
    """Tokens held by replicas in which requests queued, a slow mean."""

    def decide(self, observation: Observation) -> Wish:
        """As few replicas as keep the demand between the two ratios."""
        heard = observation.heard
        if not heard:
            return Wish(replicas=observation.replicas, message="no metric")
        self._learn(heard)
        by_memory = CACHE_SHARE * self.law.num_blocks * self.law.block_tokens
        capacity = min(by_memory, self.computed_capacity)
        demand = sum(self._demand(snapshot) for snapshot in heard)
        held = observation.replicas
        if demand > UP_RATIO * held * capacity:
            return Wish(replicas=math.ceil(demand / (UP_RATIO * capacity)), message="saturated")
        fewer = max(1, held - 1)
        if demand < DOWN_RATIO * fewer * capacity:
            return Wish(replicas=fewer, message="spare")
        return Wish(replicas=held, message="within")

    def _held(self, snapshot: Snapshot) -> float:
        return float(snapshot.used_blocks * self.law.block_tokens)

    def _demand(self, snapshot: Snapshot) -> float:
        admitted = snapshot.counters[ADMITTED]
        prompt = float(snapshot.counters[PROMPT] / admitted) if admitted else USUAL_PROMPT_TOKENS
        return self._held(snapshot) + snapshot.waiting * prompt

    def _learn(self, heard: tuple[Snapshot, ...]) -> None:
        held = [self._held(snapshot) for snapshot in heard if snapshot.waiting >= QUEUE_LENGTH]
        if held:
            mean = sum(held) / len(held)
            known = self.computed_capacity
            self.computed_capacity = mean if math.isinf(known) else 0.8 * known + 0.2 * mean
