"""Whom to ask what, for the gates: decided from the world, so that the shell only asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.decide.observed import PodView, pods_of
from octavo_operator.decide.rollout.observing import hash_terms
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.desired.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a revision's engines answer, and with which words they are asked."""

    model: str
    port: int
    api_key: str = ""
    locked: bool = False
    """They ask for a key out of a Secret, which the operator does not read."""


def candidate_of(world: World, target: Target) -> Revision | None:
    """The revision that its gates are to be asked about; None where there is none (any more)."""
    revision = target.revision
    if revision is None or world.spec.suspend:
        return None
    if revision.hash == world.selected and revision.hash in world.proven:
        return None
    stored = world.revisions.get(revision.hash)
    if stored is None:
        return revision
    failed = stored.learned.record.failed
    return None if failed is not None and failed.terms == hash_terms(world.spec) else revision


def serving_of(world: World) -> str | None:
    return world.selected if world.selected in world.proven else None


def ready_pods(world: World, revision: str | None) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods_of(world.pods, revision) if pod.ready and pod.address)


def is_cleared(world: World, revision: str) -> bool:
    stored = world.revisions.get(revision)
    return stored is not None and bool(stored.learned.record.passed)


def canary_step(world: World, revision: str) -> int | None:
    """The step whose share was reached and whose time runs; None outside of one."""
    stored = world.revisions.get(revision)
    record = stored.learned.record if stored else None
    if record is None or record.step_at is None or world.spec.rollout.strategy != "Canary":
        return None
    return record.step


def door_of(template: Mapping[str, Any], port: int) -> Door:
    """From the very template that the pods run: spec may ask for other words by now."""
    engine = next(one for one in template["spec"]["containers"] if one["name"] == names.CONTAINER_ENGINE)
    args, env = engine.get("args", []), engine.get("env", [])
    told = {one["name"]: one.get("value", "") for one in env}
    keys = _flag(args, contract.FLAG_API_KEY) or told.get(contract.API_KEY_VARIABLE, "")
    return Door(
        model=_flag(args, contract.FLAG_SERVED_MODEL_NAME),
        port=port,
        api_key=keys.partition(",")[0].strip(),
        locked=not keys and contract.API_KEY_VARIABLE in told,
    )


def _flag(args: list[str], flag: str) -> str:
    """
    >>> _flag(["serve", "--model", "m", "--model=n"], "--model")
    'n'
    """
    value = ""
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word == flag:
            value = following
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value
