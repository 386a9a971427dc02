"""One pass: from the world, the target and the number of replicas to everything that should exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from octavo_operator.api import names
from octavo_operator.api.status import InferenceServiceStatus
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.history import next_number, prunable_revisions
from octavo_operator.decide.pinning import add_pin
from octavo_operator.decide.report import Decisions, build_status
from octavo_operator.decide.rollout import RolloutDecision, RolloutView, decide_rollout
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.surroundings import Sharing, build_policies, build_surroundings, find_stale
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.controller_revision import build_controller_revision
from octavo_operator.desired.deployment import build_deployment
from octavo_operator.desired.metadata import Manifest
from octavo_operator.desired.pins import build_pins
from octavo_operator.desired.revision import Revision, revision_data
from octavo_operator.desired.service import build_service


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A child that should no longer exist."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    """What a pass wants, in the order in which it is to be done."""

    manifests: tuple[Manifest, ...]
    removals: tuple[Removal, ...]
    status: InferenceServiceStatus


def decide_next_state(world: World, target: Target, scaling: ScalingDecision, *, now: datetime) -> NextState:
    rollout = decide_rollout(
        RolloutView(
            target=target.revision.hash if target.revision else None,
            selected=world.selected,
            proven=world.proven,
            deployments=world.deployments,
            replicas=scaling.replicas,
        )
    )
    decisions = Decisions(target=target, rollout=rollout, scaling=scaling)
    manifests = build_manifests(world, target, rollout, now=now)
    return NextState(
        manifests=tuple(manifests),
        removals=(
            *build_removals(world, rollout, manifests),
            *build_resolver_removals(world, target),
        ),
        status=build_status(world, decisions, now=now),
    )


def build_manifests(
    world: World, target: Target, rollout: RolloutDecision, *, now: datetime
) -> list[Manifest]:
    """What is remembered comes before what runs: a crash in between loses no promise."""
    manifests: list[Manifest] = []
    if target.pin is not None:
        manifests.append(build_pins(world.owner, add_pin(world.pins, target.pin)))
    if target.revision is not None:
        manifests.append(build_target_revision(world, target.revision, rollout, now=now))
    templates = {one: template_of(world, target, one) for one in rollout.replicas}
    manifests += build_policies(world, templates)
    manifests += [
        build_deployment(
            world.owner,
            one,
            templates[one],
            replicas=replicas,
            progress_deadline_seconds=world.spec.rollout.progress_deadline_seconds,
        )
        for one, replicas in rollout.replicas.items()
    ]
    if rollout.serving is not None:
        port = world.spec.routing.port
        manifests.append(build_service(world.owner, port=port, serving=rollout.serving))
    return manifests + build_surroundings(world, sharing_of(rollout))


def sharing_of(rollout: RolloutDecision) -> Sharing:
    return Sharing(weights={rollout.serving: 100} if rollout.serving else {}, services=())


def template_of(world: World, target: Target, wanted: str) -> Mapping[str, Any]:
    """The record's; where somebody deleted the record of what serves, its pods are the last witness."""
    if target.revision is not None and target.revision.hash == wanted:
        return target.revision.template
    stored = world.revisions.get(wanted)
    return stored.revision.template if stored else world.deployments[wanted].template


def build_target_revision(
    world: World, revision: Revision, rollout: RolloutDecision, *, now: datetime
) -> Manifest:
    stored = world.revisions.get(revision.hash)
    proven_at = stored.proven_at if stored else None
    if rollout.newly_proven:
        proven_at = format_time(now)
    number = stored.number if stored else next_number(world.numbers)
    data = stored.data if stored else revision_data(revision)
    return build_controller_revision(world.owner, data, number=number, proven_at=proven_at)


def build_removals(world: World, rollout: RolloutDecision, wanted: Sequence[Manifest]) -> list[Removal]:
    in_use = {*rollout.replicas, *world.deployments}
    limit = world.spec.rollout.revision_history_limit
    pruned = prunable_revisions(world.numbers, in_use=in_use, limit=limit)
    return [
        *(
            Removal(kind="Deployment", name=names.revision_name(world.owner.name, one))
            for one in rollout.remove
        ),
        *(
            Removal(kind="ControllerRevision", name=names.revision_name(world.owner.name, one))
            for one in pruned
        ),
        *(Removal(kind=one.kind, name=one.name) for one in find_stale(world, wanted)),
    ]


def build_resolver_removals(world: World, target: Target) -> list[Removal]:
    """Pods whose answer was taken, or that nobody waits for any more."""
    return [
        Removal(kind="Pod", name=view.pod.name)
        for view in world.resolvers
        if view.question != target.question and not view.pod.terminating
    ]
