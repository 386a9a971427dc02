"""From the world and the readings to what the planner is asked about."""

from __future__ import annotations

from collections.abc import Mapping

from octavo_operator.decide.failures import find_failure
from octavo_operator.decide.observed import PodView
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


def view_service(
    world: World, target: Target, readings: Mapping[str, Reading], *, held: int
) -> ServiceView | None:
    """None while no revision serves; `held` is the number that there is to be."""
    stored = world.revisions.get(world.selected or "")
    if stored is None:
        return None
    revision = stored.revision
    return ServiceView(
        pods=tuple(
            view_pod(pod, readings.get(pod.name)) for pod in world.pods if pod.revision == revision.hash
        ),
        replicas=held,
        in_rollout=target.revision is None or target.revision.hash != world.selected,
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
