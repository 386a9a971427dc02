"""Where the number of replicas is not the operator's to choose: spec says it, or an autoscaler through it."""

from __future__ import annotations

from octavo_operator.api.spec import Autoscaling, InferenceServiceSpec
from octavo_operator.decide.scaling.decision import ScalingDecision


def decide_fixed_replicas(spec: InferenceServiceSpec) -> ScalingDecision | None:
    """The number where the operator does not choose it; None under mode SLO."""
    policy = spec.autoscaling
    if policy is None:
        return ScalingDecision(
            replicas=spec.replicas, reason="Static", message=f"spec.replicas is {spec.replicas}"
        )
    if policy.mode == "SLO":
        return None
    bounded = clamp(spec.replicas, policy)
    held = "" if bounded == spec.replicas else f", held within {policy.min_replicas}…{policy.max_replicas}"
    message = f"spec.replicas was set to {spec.replicas} through the scale subresource{held}"
    return ScalingDecision(replicas=bounded, reason=policy.mode, message=message)


def clamp(replicas: int, policy: Autoscaling) -> int:
    return min(max(replicas, policy.min_replicas), policy.max_replicas)
