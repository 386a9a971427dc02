"""Engines whose answers do not move: a hung exporter or a dead engine thread repeats its last numbers.

Taken at their word they would say that nothing arrives any more, and the replicas would fall while
everything is busy. An engine that has sequences to run makes steps; one that has made none since the last
answer is as unknown as one that does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from octavo_operator.decide.scaling.readings import EngineReading, Unknown
from octavo_operator.decide.scaling.view import ScaledPod, ServiceView

STUCK: Final = Unknown(reason="has sequences to run, but made no step since its last answer")


def without_stuck(view: ServiceView, last: Mapping[str, EngineReading]) -> ServiceView:
    """The view with such readings made unknown; what is remembered of them stays as it was."""
    return replace(view, pods=tuple(_checked(pod, last.get(pod.name)) for pod in view.pods))


def _checked(pod: ScaledPod, before: EngineReading | None) -> ScaledPod:
    after = pod.reading
    if before is None or isinstance(after, Unknown) or after.at <= before.at:
        return pod
    idle = min(before.sequences, after.sequences) <= 0
    return pod if idle or after.steps.steps != before.steps.steps else replace(pod, reading=STUCK)
