"""Kubernetes Events: what changed between two statuses that a person would want to read later.

Derived from the stored status and the new one, so that a restarted operator repeats nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from octavo_operator.api.status import Condition, InferenceServiceStatus
from octavo_operator.decide.conditions import READY
from octavo_operator.decide.model_conditions import REVISION_DRIFTED, find_condition
from octavo_operator.decide.resolving import RESOLVING
from octavo_operator.decide.scaling.report import RECOMMENDED

CALM_REASONS: Final = frozenset({"RolloutProgressing", "NoRevision", RESOLVING, "Suspended"})
"""Of Ready=False, where nothing went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """An Event before it has a name and a time."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def draft_events(before: InferenceServiceStatus, after: InferenceServiceStatus) -> tuple[EventDraft, ...]:
    drafts = (
        _resolution(before, after),
        _readiness(before, after),
        _drift(before, after),
        _scaling(before, after),
    )
    return tuple(draft for draft in drafts if draft is not None)


def _ready_of(status: InferenceServiceStatus) -> Condition | None:
    return find_condition(status, READY)


def _drift(before: InferenceServiceStatus, after: InferenceServiceStatus) -> EventDraft | None:
    """Said once when upstream moves on, and again when it moves further."""
    old, new = find_condition(before, REVISION_DRIFTED), find_condition(after, REVISION_DRIFTED)
    if new is None or new.status != "True":
        return None
    if old is not None and (old.status, old.message) == (new.status, new.message):
        return None
    return EventDraft(type="Normal", reason=new.reason, message=new.message)


def _readiness(before: InferenceServiceStatus, after: InferenceServiceStatus) -> EventDraft | None:
    old, new = _ready_of(before), _ready_of(after)
    if new is None or new.status == "Unknown":
        return None
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    calm = new.status == "True" or new.reason in CALM_REASONS
    return EventDraft(type="Normal" if calm else "Warning", reason=new.reason, message=new.message)


def _resolution(before: InferenceServiceStatus, after: InferenceServiceStatus) -> EventDraft | None:
    if after.model is None or _commit_of(before) == _commit_of(after):
        return None
    message = f"{after.model.requested_revision} is commit {after.model.resolved_revision}"
    return EventDraft(type="Normal", reason="Resolved", message=message)


def _commit_of(status: InferenceServiceStatus) -> tuple[str, str] | None:
    model = status.model
    return (model.requested_revision, model.resolved_revision) if model is not None else None


def _scaling(before: InferenceServiceStatus, after: InferenceServiceStatus) -> EventDraft | None:
    old, new = before.autoscaling, after.autoscaling
    if old is None or new is None or old.desired_replicas == new.desired_replicas:
        return None
    if new.reason == RECOMMENDED:
        return None
    message = f"From {old.desired_replicas} to {new.desired_replicas}. {new.message}"
    return EventDraft(type="Normal", reason="Scaled", message=message)
