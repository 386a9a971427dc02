"""What a rollout is decided from, taken out of the world."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Final

from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.decide.failures import find_failure
from octavo_operator.decide.observed import PodView, count_ready, pods_of
from octavo_operator.decide.rollout.values import (
    CanaryStep,
    Fleet,
    GateFacts,
    RolloutPolicy,
    RolloutView,
    Trouble,
)
from octavo_operator.decide.surroundings import find_missing_kind
from octavo_operator.decide.world import World

DEFAULT_STEPS: Final = (CanaryStep(weight=10, seconds=300),)
"""Of strategy Canary where spec names none."""
ENDED_PHASES: Final = ("Succeeded", "Failed")
"""Such a pod holds no place any more: an evicted one stays behind as a record."""
TERMS_LENGTH: Final = 10


def observe(
    world: World, target: str | None, replicas: int, gates: GateFacts, *, now: datetime
) -> RolloutView:
    records = {one: stored.learned.record for one, stored in world.revisions.items()}
    return RolloutView(
        now=now.timestamp(),
        target=target,
        selected=world.selected,
        shared=world.shared,
        proven=world.proven,
        stored=frozenset(world.revisions),
        fleets=view_fleets(world),
        records=records,
        replicas=replicas,
        policy=read_policy(world.spec, routed=is_routed(world)),
        gates=gates,
        trouble=find_trouble(world, target),
        no_room_since=find_no_room(world, target),
    )


def view_fleets(world: World) -> dict[str, Fleet]:
    present = [pod for pod in world.pods if pod.phase not in ENDED_PHASES]
    revisions = {*world.deployments, *(pod.revision for pod in present if pod.revision)}
    return {one: view_fleet(world, one, [pod for pod in present if pod.revision == one]) for one in revisions}


def view_fleet(world: World, revision: str, pods: list[PodView]) -> Fleet:
    deployment = world.deployments.get(revision)
    wanted = deployment.wanted if deployment else 0
    return Fleet(
        wanted=wanted,
        # Of what was too many just now some are still there and ready, but not for long.
        ready=min(wanted, count_ready(pods, revision)),
        pods=len(pods),
        ending=sum(pod.terminating for pod in pods),
        deployed=deployment is not None,
        settled=deployment is None or deployment.settled,
    )


def is_routed(world: World) -> bool:
    """A route that the cluster cannot have divides nothing."""
    return world.spec.routing.http_route is not None and find_missing_kind(world) is None


def read_policy(spec: InferenceServiceSpec, *, routed: bool) -> RolloutPolicy:
    rollout = spec.rollout
    steps = tuple(
        CanaryStep(weight=step.weight_percent, seconds=step.duration_seconds) for step in rollout.canary_steps
    )
    return RolloutPolicy(
        strategy=rollout.strategy,
        steps=steps or DEFAULT_STEPS,
        deadline_seconds=rollout.progress_deadline_seconds,
        routed=routed,
        terms=hash_terms(spec),
    )


def hash_terms(spec: InferenceServiceSpec) -> str:
    """Of those words of spec.rollout that can make a failed rollout succeed."""
    words = spec.rollout.model_dump(
        mode="json",
        include={"strategy", "canary_steps", "gate", "on_failure", "progress_deadline_seconds"},
    )
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:TERMS_LENGTH]


def find_trouble(world: World, target: str | None) -> Trouble | None:
    """What no waiting mends; a refusal that may pass is left to the deadline."""
    if target is None:
        return None
    failure = find_failure(pods_of(world.pods, target), world.deployments.get(target))
    if failure is None or not failure.lasting:
        return None
    return Trouble(reason=failure.reason, message=failure.message, exit_code=failure.exit_code)


def find_no_room(world: World, target: str | None) -> float | None:
    times = [pod.unschedulable_at for pod in pods_of(world.pods, target) if pod.unschedulable_at is not None]
    return min(times, default=None)
