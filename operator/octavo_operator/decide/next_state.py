"""One pass: from the world, the target and the number of replicas to everything that should exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from octavo_operator.api import names
from octavo_operator.api.status import InferenceServiceStatus
from octavo_operator.decide.history import next_number, prunable_revisions
from octavo_operator.decide.kept_configs import keep_config
from octavo_operator.decide.learning import learn
from octavo_operator.decide.pinning import add_pin
from octavo_operator.decide.report import Decisions, build_status
from octavo_operator.decide.rollout import RolloutDecision, decide_rollout
from octavo_operator.decide.rollout.observing import observe
from octavo_operator.decide.rollout.values import GateFacts
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.surroundings import Sharing, build_policies, build_surroundings, find_stale
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.controller_revision import build_controller_revision
from octavo_operator.desired.deployment import build_deployment
from octavo_operator.desired.metadata import Manifest
from octavo_operator.desired.pins import Pin, build_pins
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
    again_seconds: float | None = None
    """When time alone may change it."""


def decide_next_state(
    world: World,
    target: Target,
    scaling: ScalingDecision,
    *,
    now: datetime,
    gates: GateFacts,
) -> NextState:
    asked = target.revision.hash if target.revision else None
    rollout = decide_rollout(observe(world, asked, scaling.replicas, gates, now=now))
    decisions = Decisions(target=target, rollout=rollout, scaling=scaling)
    status = build_status(world, decisions, now=now)
    if world.spec.suspend:
        return NextState(manifests=(), removals=(), status=status)
    manifests = build_manifests(world, target, rollout, now=now)
    return NextState(
        manifests=tuple(manifests),
        removals=(
            *build_removals(world, rollout, manifests),
            *build_resolver_removals(world, target),
        ),
        status=status,
        again_seconds=rollout.again_seconds,
    )


def build_manifests(
    world: World, target: Target, rollout: RolloutDecision, *, now: datetime
) -> list[Manifest]:
    """What is remembered comes before what runs: a crash in between loses no promise.

    The Service comes before the Deployments, so that no pod is selected by what it no longer says.
    """
    manifests: list[Manifest] = []
    if target.pin is not None:
        manifests.append(build_ledger(world, target.pin, target.config))
    manifests += build_revisions(world, target.revision, rollout, now=now)
    manifests += build_main_service(world, rollout)
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
    return manifests + build_surroundings(world, sharing_of(rollout))


def sharing_of(rollout: RolloutDecision) -> Sharing:
    return Sharing(weights=rollout.weights, services=rollout.services)


def build_main_service(world: World, rollout: RolloutDecision) -> list[Manifest]:
    """There before anything serves: its name is taken, and nobody is selected yet."""
    if rollout.serving is None and rollout.target is None:
        return []
    port = world.spec.routing.port
    return [build_service(world.owner, port=port, serving=rollout.serving, shared=rollout.shared)]


def template_of(world: World, target: Target, wanted: str) -> Mapping[str, Any]:
    """The record's; where somebody deleted the record of what serves, its pods are the last witness."""
    if target.revision is not None and target.revision.hash == wanted:
        return target.revision.template
    stored = world.revisions.get(wanted)
    return stored.revision.template if stored else world.deployments[wanted].template


def build_revisions(
    world: World, asked: Revision | None, rollout: RolloutDecision, *, now: datetime
) -> list[Manifest]:
    """The target's record always; another's where something was learned of it."""
    manifests = []
    for one, stored in world.revisions.items():
        before, learned = stored.learned, learn(world, rollout, one, now=now)
        if learned != before or (asked is not None and one == asked.hash):
            manifests.append(
                build_controller_revision(
                    world.owner, stored.data, number=stored.number, learned=learned, before=before
                )
            )
    if asked is not None and asked.hash not in world.revisions:
        learned = learn(world, rollout, asked.hash, now=now)
        number = next_number(world.numbers)
        data = revision_data(asked)
        manifests.append(build_controller_revision(world.owner, data, number=number, learned=learned))
    return manifests


def build_removals(world: World, rollout: RolloutDecision, wanted: Sequence[Manifest]) -> list[Removal]:
    in_use = {*rollout.replicas, *world.deployments, rollout.target or "", rollout.serving or ""}
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


def build_ledger(world: World, pin: Pin, config: str) -> Manifest:
    pins = add_pin(world.pins, pin)
    return build_pins(world.owner, pins, keep_config(world.configs, pins, commit=pin.commit, config=config))


def build_resolver_removals(world: World, target: Target) -> list[Removal]:
    """Pods whose answer was taken, or that nobody waits for any more."""
    return [
        Removal(kind="Pod", name=view.pod.name)
        for view in world.resolvers
        if view.question not in (target.question, world.scouting) and not view.pod.terminating
    ]
