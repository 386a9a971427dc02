"""From the world and the readings to what the planner is asked about."""

from __future__ import annotations

from collections.abc import Mapping

from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.failures import find_failure
from octavo_operator.decide.observed import PodView
from octavo_operator.decide.scaling.fixed import clamp
from octavo_operator.decide.scaling.prior import find_prior, name_kind
from octavo_operator.decide.scaling.readings import Reading
from octavo_operator.decide.scaling.view import NOT_ASKED, PodState, ScaledPod, ServiceView
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World


def readable_pods(world: World) -> tuple[PodView, ...]:
    """Those whose engines are asked: ready, of the revision that serves, and there to stay."""
    return tuple(
        pod
        for pod in world.pods
        if pod.revision == world.selected and pod.ready and not pod.terminating and pod.address
    )


def held_replicas(world: World, policy: Autoscaling) -> int:
    """How many replicas there are to be, all revisions together, before this round.

    What was last decided. One Deployment's size is not it: in a rollout two may share the number.
    """
    if policy.mode == "Recommend":
        return world.spec.replicas
    if world.status.autoscaling is not None:
        return world.status.autoscaling.desired_replicas
    serving = world.deployments.get(world.selected or "")
    return serving.wanted if serving is not None else clamp(0, policy)


def is_rolling(world: World, target: Target) -> bool:
    """Another revision is on its way; a spec that is refused is on no way."""
    return target.revision is not None and target.revision.hash != world.selected


def view_service(
    world: World, target: Target, readings: Mapping[str, Reading], *, policy: Autoscaling
) -> ServiceView | None:
    """None while no revision serves."""
    stored = world.revisions.get(world.selected or "")
    if stored is None:
        return None
    revision = stored.revision
    return ServiceView(
        pods=tuple(
            view_pod(pod, readings.get(pod.name)) for pod in world.pods if pod.revision == revision.hash
        ),
        replicas=held_replicas(world, policy),
        in_rollout=is_rolling(world, target),
        engine=name_kind(revision),
        prior=find_prior(revision.plan, readings.values()),
        max_model_len=revision.plan.max_model_len,
    )


def view_pod(pod: PodView, reading: Reading | None) -> ScaledPod:
    return ScaledPod(
        name=pod.name,
        state=state_of(pod),
        created_at=pod.created_at,
        ready_at=pod.ready_at,
        reading=reading or NOT_ASKED,
    )


def state_of(pod: PodView) -> PodState:
    """
    | pod                                   | state         |
    | is to end                             | terminating   |
    | ready                                 | ready         |
    | no node takes it                      | unschedulable |
    | a container failed, or cannot start   | failing       |
    | otherwise                             | starting      |
    """
    if pod.terminating or pod.phase in ("Succeeded", "Failed"):
        return "terminating"
    if pod.ready:
        return "ready"
    if pod.unschedulable:
        return "unschedulable"
    return "failing" if find_failure((pod,), None) else "starting"
