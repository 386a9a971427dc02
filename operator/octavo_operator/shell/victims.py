"""Marks the pods to give up, just before their number falls: a ReplicaSet ends the cheapest ones first."""

from __future__ import annotations

import logging
from typing import Final

from octavo_operator.api import names
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.world import World
from octavo_operator.shell.kinds import PODS
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube

CHEAP: Final = "-100"
ORDINARY: Final = "0"
"""For pods that were marked once and were not given up."""

logger = logging.getLogger(__name__)


def costs_to_set(world: World, scaling: ScalingDecision) -> dict[str, str]:
    """By pod, where it differs from what is there; empty unless the number is about to fall."""
    serving = world.deployments.get(world.selected or "")
    if world.spec.suspend or not scaling.victims:
        return {}
    if serving is None or scaling.replicas >= serving.wanted:
        return {}
    wanted = {
        pod.name: CHEAP if pod.name in scaling.victims else ORDINARY if pod.deletion_cost else ""
        for pod in world.pods
        if pod.revision == world.selected
    }
    return {
        pod.name: wanted[pod.name]
        for pod in world.pods
        if pod.name in wanted and wanted[pod.name] != pod.deletion_cost
    }


async def mark_victims(kube: Kube, world: World, scaling: ScalingDecision) -> None:
    """A pod that is gone, or a mark that is refused, costs the choice only: the number falls all the same."""
    for pod, cost in costs_to_set(world, scaling).items():
        annotations = {names.ANNOTATION_DELETION_COST: cost}
        try:
            await kube.annotate(PODS, world.owner.namespace, pod, annotations)
        except (ApiRefused, ApiUnreachable) as error:
            place = {"namespace": world.owner.namespace, "service": world.owner.name}
            logger.warning("pod %s could not be marked: %s", pod, error, extra=place)
