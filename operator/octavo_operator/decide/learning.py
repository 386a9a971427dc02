"""What this pass adds to what is known of each revision."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from octavo_operator.api import names
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.observed import PodView, pods_of
from octavo_operator.decide.rollout import RolloutDecision
from octavo_operator.decide.world import World
from octavo_operator.desired.learned import Learned

NOTHING = Learned()


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
    digest = next((one for pod in pods_of(world.pods, revision) if (one := image_digest(pod))), "")
    return replace(learned, image_digest=learned.image_digest or digest)


def image_digest(pod: PodView) -> str:
    """Of the engine image that a ready pod runs, as the container runtime tells it."""
    if not pod.ready:
        return ""
    engine = next((one for one in pod.containers if one.name == names.CONTAINER_ENGINE), None)
    found = re.search(r"sha256:[0-9a-f]{64}", engine.image_id) if engine else None
    return found[0] if found else ""
