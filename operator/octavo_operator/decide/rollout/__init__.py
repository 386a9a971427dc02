"""How one revision takes over from another, decided from what is seen and remembered."""

from octavo_operator.decide.rollout.decision import decide_rollout
from octavo_operator.decide.rollout.values import RolloutDecision, RolloutView

__all__ = ["RolloutDecision", "RolloutView", "decide_rollout"]
