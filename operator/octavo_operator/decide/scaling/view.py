"""What a decision about replicas is made from, besides what is remembered: the pods and how they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from octavo.step_model import StepCosts
from octavo_operator.decide.scaling.readings import EngineReading, Reading, Unknown

NOT_ASKED: Final = Unknown(reason="not ready")
PodState = Literal["ready", "starting", "failing", "unschedulable", "terminating"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPod:
    """One pod of the revision that serves."""

    name: str
    state: PodState
    created_at: float
    ready_at: float | None = None
    """When it became ready; None while it is not."""
    reading: Reading = NOT_ASKED
    """Only a ready pod is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """One service at one moment."""

    pods: tuple[ScaledPod, ...]
    replicas: int
    """How many there are to be now: what was last written."""
    in_rollout: bool
    engine: str
    """Names the kind of replica: (commit, image, accelerator, tensor parallel) as one text."""
    prior: StepCosts
    """Of this kind of replica, before anything was measured."""
    max_model_len: int

    @property
    def fresh(self) -> dict[str, EngineReading]:
        """By pod, of ready pods that answered."""
        return {
            pod.name: pod.reading
            for pod in self.pods
            if pod.state == "ready" and isinstance(pod.reading, EngineReading)
        }

    def count(self, *states: PodState) -> int:
        return sum(pod.state in states for pod in self.pods)
