"""A number of replicas that nobody changes."""

from __future__ import annotations

from dataclasses import dataclass

from octavo_operator.simulation.observing import Observation, Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """So many, always."""

    replicas: int
    interval_seconds: float = 60.0

    @property
    def name(self) -> str:
        return f"static {self.replicas}"

    def decide(self, observation: Observation) -> Wish:
        """The number it was given."""
        return Wish(replicas=self.replicas)
