"""What this pass adds to what is known of each revision."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.image_pinning import observed_digests
from octavo_operator.decide.observed import pods_of
from octavo_operator.decide.rollout import RolloutDecision
from octavo_operator.decide.world import World
from octavo_operator.desired.learned import NOTHING, Learned


def learned_before(world: World, revision: str) -> Learned:
    stored = world.revisions.get(revision)
    return stored.learned if stored else NOTHING


def learn(world: World, rollout: RolloutDecision, revision: str, *, now: datetime) -> Learned:
    learned = learned_before(world, revision)
    if revision in rollout.records:
        learned = replace(learned, record=rollout.records[revision])
    if revision == rollout.target and rollout.newly_proven:
        learned = replace(learned, proven_at=format_time(now))
    if revision == rollout.target and rollout.evidence:
        learned = replace(learned, evidence=rollout.evidence)
    if revision == rollout.target and world.engine_reported_blocks:
        learned = replace(learned, engine_blocks=world.engine_reported_blocks)
    if revision in world.answers:
        learned = replace(learned, answers=world.answers[revision])
    ready = (pod for pod in pods_of(world.pods, revision) if pod.ready)
    digest = next(iter(observed_digests(ready)), "")
    return replace(learned, image_digest=learned.image_digest or digest)
