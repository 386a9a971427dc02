"""The status of one InferenceService, assembled from what was decided and seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.api.status import (
    MAX_FAILURE_LENGTH,
    MAX_NOTES,
    Address,
    InferenceServiceStatus,
    LastFailure,
    LastKnownGood,
    MemoryPlanStatus,
)
from octavo_operator.decide.conditions import (
    Finding,
    ServingView,
    date_conditions,
    format_time,
    judge,
    judge_available,
    judge_first_visit,
    judge_invalid,
    obstruct,
    storable,
)
from octavo_operator.decide.failures import Failure, find_failure
from octavo_operator.decide.fetching import tell_fetch
from octavo_operator.decide.image_pinning import judge_image, observed_digests
from octavo_operator.decide.learning import learn, learned_before
from octavo_operator.decide.model_conditions import judge_words, model_status
from octavo_operator.decide.observed import PodView, count_ready, pods_of
from octavo_operator.decide.rollout import RolloutDecision
from octavo_operator.decide.rollout_conditions import (
    judge_gate,
    judge_suspended,
    last_known_good,
    rollout_status,
)
from octavo_operator.decide.scaling import ScalingDecision
from octavo_operator.decide.scaling.findings import judge_scaling
from octavo_operator.decide.scaling.report import autoscaling_status
from octavo_operator.decide.surroundings import find_missing_kind
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.service import service_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """All that a pass decided."""

    target: Target
    rollout: RolloutDecision
    scaling: ScalingDecision


def build_status(world: World, decisions: Decisions, *, now: datetime) -> InferenceServiceStatus:
    rollout, target = decisions.rollout, decisions.target
    view = view_serving(world, decisions)
    updated = world.deployments.get(rollout.target or "")
    answering = answering_revisions(rollout)
    url = service_url(world.owner, port=world.spec.routing.port) if answering else None
    return InferenceServiceStatus(
        observed_generation=world.generation,
        conditions=date_conditions(
            (
                *judge_ready(world, target, rollout, view),
                *judge_rollout(world, rollout),
                *judge_words(world, target.pin),
                *judge_engine_image(world, target),
                *judge_scaling(decisions.scaling, world.spec.autoscaling),
            ),
            world.status.conditions,
            generation=world.generation,
            now=now,
        ),
        url=url,
        address=Address(url=url) if url else None,
        replicas=sum(world.deployments[one].existing for one in answering if one in world.deployments),
        ready_replicas=view.ready,
        updated_replicas=updated.existing if updated else 0,
        selector=selector_text(world.owner.name, answering[0], shared=rollout.shared) if answering else None,
        model=model_status(world, target.pin),
        memory_plan=report_plan(target.revision.plan, world.engine_reported_blocks)
        if target.revision
        else None,
        current_revision=rollout.serving if rollout.serving in proven_after(world, rollout) else None,
        update_revision=rollout.target,
        last_known_good=report_known_good(world, rollout, target, now=now),
        rollout=rollout_status(rollout),
        autoscaling=autoscaling_status(decisions.scaling, world.status.autoscaling),
        last_failure=last_failure(world, target, rollout, view.failure, now=now),
    )


def judge_ready(
    world: World, target: Target, rollout: RolloutDecision, view: ServingView
) -> tuple[Finding, ...]:
    """As the revision that spec asks for does; with what else is missing, and how far its files are."""
    findings = obstruct(judge(target, rollout, view), find_missing_kind(world))
    return tell_fetch(findings, world.fetching)


def judge_engine_image(world: World, target: Target) -> tuple[Finding, ...]:
    if target.revision is None:
        return ()
    pods = pods_of(world.pods, target.revision.hash)
    return (judge_image(target.revision.image, observed_digests(pods)),)


def judge_rollout(world: World, rollout: RolloutDecision) -> tuple[Finding, ...]:
    learned = learned_before(world, rollout.target or "")
    return (judge_gate(rollout, learned, world.spec.rollout), judge_suspended(world.spec.suspend))


def answering_revisions(rollout: RolloutDecision) -> tuple[str, ...]:
    """Whose pods the Service selects, or will; the first is the one that serves."""
    serving = rollout.serving or rollout.target
    if serving is None:
        return ()
    others = sorted(one for one in rollout.weights if one != serving) if rollout.shared else []
    return (serving, *others)


def report_known_good(
    world: World, rollout: RolloutDecision, target: Target, *, now: datetime
) -> LastKnownGood | None:
    serving = rollout.serving
    if serving is None:
        return None
    asked = target.revision if target.revision and target.revision.hash == serving else None
    stored = world.revisions.get(serving)
    learned = learn(world, rollout, serving, now=now)
    revision = asked or (stored.revision if stored else None)
    return last_known_good(serving, revision, learned, proven_at=learned.proven_at)


def report_plan(plan: MemoryPlanStatus, reported: int | None) -> MemoryPlanStatus:
    """The plan, beside what the engine found; a note where they differ by more than the engine tolerates."""
    if reported is None:
        return plan
    share = reported / plan.kv_blocks - 1 if plan.kv_blocks else 0.0
    notes = plan.notes
    if abs(share) > contract.PLAN_TOLERANCE:
        words = f"The engine measured room for {reported} blocks, {share:+.1%} of the plan; its log says why."
        notes = (*notes[: MAX_NOTES - 1], words)
    return plan.model_copy(update={"engine_reported_blocks": reported, "notes": notes})


def build_first_status(world: World, *, now: datetime) -> InferenceServiceStatus:
    """What is said of a new generation before its words are looked up; the rest stays as it was."""
    conditions = date_conditions(
        judge_first_visit(), world.status.conditions, generation=world.generation, now=now
    )
    return world.status.model_copy(update={"observed_generation": world.generation, "conditions": conditions})


def build_invalid_status(
    before: InferenceServiceStatus,
    pods: Sequence[PodView],
    *,
    generation: int,
    reason: str,
    message: str,
    now: datetime,
) -> InferenceServiceStatus:
    """What is said of an object that cannot be read, or not its pins; whatever runs is left alone.

    Whether that still answers is told all the same.
    """
    current = before.current_revision
    ready = count_ready(pods, current)
    findings = (*judge_invalid(reason, message), judge_available(current, ready))
    conditions = date_conditions(findings, before.conditions, generation=generation, now=now)
    changes = {
        "observed_generation": generation,
        "conditions": conditions,
        "replicas": len(pods_of(pods, current)),
        "ready_replicas": ready,
    }
    return before.model_copy(update=changes)


def proven_after(world: World, rollout: RolloutDecision) -> frozenset[str]:
    new = {rollout.target} if rollout.newly_proven and rollout.target else set()
    return world.proven | new


def view_serving(world: World, decisions: Decisions) -> ServingView:
    rollout = decisions.rollout
    asked = world.deployments.get(rollout.target or "")
    carrying = [one for one in rollout.weights if one in world.deployments]
    return ServingView(
        ready=sum(count_ready(world.pods, one) for one in carrying),
        wanted=decisions.scaling.replicas,
        failure=find_failure(pods_of(world.pods, rollout.target), asked) if rollout.target else None,
        deadline_exceeded=asked.deadline_exceeded if asked else False,
        suspended=world.spec.suspend,
        sharing=", ".join(others_with_traffic(world, rollout.serving)),
    )


def others_with_traffic(world: World, serving: str | None) -> list[str]:
    """As the cluster has it now, whatever was decided: a suspended service goes on sharing."""
    return sorted(
        one
        for one in world.deployments
        if one != serving and count_ready(world.pods, one) > 0 and (world.shared or weight_of(world, one) > 0)
    )


def weight_of(world: World, revision: str) -> int:
    stored = world.revisions.get(revision)
    return stored.learned.record.weight if stored else 0


def selector_text(service: str, revision: str, *, shared: bool) -> str:
    selector = names.shared_selector(service) if shared else names.pod_selector(service, revision)
    return ",".join(f"{key}={value}" for key, value in selector.items())


def last_failure(
    world: World, target: Target, rollout: RolloutDecision, failure: Failure | None, *, now: datetime
) -> LastFailure | None:
    """Kept after it was mended; the time is when this very failure was first seen."""
    if target.refusal is not None and target.refusal.waits:
        return world.status.last_failure
    if target.refusal is not None:
        failure = Failure(reason=target.refusal.reason, message=target.refusal.message)
    elif rollout.failed is not None:
        failed = rollout.failed
        failure = Failure(reason=failed.reason, message=failed.message, exit_code=failed.exit_code)
    if failure is None:
        return world.status.last_failure
    before, message = world.status.last_failure, storable(failure.message, MAX_FAILURE_LENGTH)
    if before and (before.reason, before.message) == (failure.reason, message):
        return before
    return LastFailure(
        reason=failure.reason, message=message, exit_code=failure.exit_code, time=format_time(now)
    )
