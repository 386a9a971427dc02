"""How many replicas there should be. `decide_replicas` is the planner; the rest is what it takes and gives.

A module for each idea: `readings` and `view` are what is seen, `state` what is remembered, `observing` takes
a round in, `sizing` computes the need, `brakes` and `lowering` stand against it, `planner` weighs them.
"""

from octavo_operator.decide.scaling.decision import PastDecision, ScalingDecision, ScalingFigures
from octavo_operator.decide.scaling.fixed import clamp, decide_fixed_replicas
from octavo_operator.decide.scaling.planner import decide_replicas
from octavo_operator.decide.scaling.readings import EngineReading, Histogram, Reading, StepSums, Unknown
from octavo_operator.decide.scaling.state import PlannerState
from octavo_operator.decide.scaling.view import PodState, ScaledPod, ServiceView

__all__ = [
    "EngineReading",
    "Histogram",
    "PastDecision",
    "PlannerState",
    "PodState",
    "Reading",
    "ScaledPod",
    "ScalingDecision",
    "ScalingFigures",
    "ServiceView",
    "StepSums",
    "Unknown",
    "clamp",
    "decide_fixed_replicas",
    "decide_replicas",
]
