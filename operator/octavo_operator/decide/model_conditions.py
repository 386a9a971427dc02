"""Conditions about the words themselves: do they keep their promise, and has the world moved on?"""

from __future__ import annotations

from typing import Final

from octavo import engine_contract as contract
from octavo_operator.api import names
from octavo_operator.api.spec import ModelSource
from octavo_operator.api.status import Condition, ConditionStatus, InferenceServiceStatus, ModelStatus
from octavo_operator.decide.conditions import Finding
from octavo_operator.decide.pinning import is_on_hub, is_pinned, is_tracked
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import Upstream
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin

REVISION_PINNED: Final = "RevisionPinned"
REVISION_DRIFTED: Final = "RevisionDrifted"


def judge_pinned(model: ModelSource, pin: Pin | None) -> Finding:
    """
    | words           | policy             | RevisionPinned          |
    |-----------------|--------------------|-------------------------|
    | commit, digest  | any                | True, `Pinned`          |
    | branch, tag, …  | Track              | False, `Tracked`        |
    | branch, tag, …  | any other          | False, `UnpinnedWords`  |
    """
    if is_pinned(model):
        message = f"{model.revision} names the files themselves"
        return Finding(type=REVISION_PINNED, status="True", reason="Pinned", message=message)
    if is_tracked(model):
        message = f"{model.revision} is followed as it moves (revisionPolicy Track)"
        return Finding(type=REVISION_PINNED, status="False", reason="Tracked", message=message)
    kept = f"commit {pin.commit}" if pin is not None and is_on_hub(pin.uri) else "what it was first"
    way_out = f"write revision: {pin.commit}" if pin is not None else "write the commit or digest itself"
    message = (
        f"{model.revision} stays {kept} for as long as this InferenceService exists, and no longer; "
        f"{way_out} to keep it beyond that"
    )
    return Finding(type=REVISION_PINNED, status="False", reason="UnpinnedWords", message=message)


def judge_drifted(
    model: ModelSource, pin: Pin, upstream: Upstream | None, before: Condition | None
) -> Finding:
    """Whether the words would mean something else if they were resolved now.

    | words, hub                         | RevisionDrifted             |
    |------------------------------------|-----------------------------|
    | cannot move, or no hub knows them  | False, `CannotMove`         |
    | not asked since the start          | as `before`; else Unknown, `NotAsked` |
    | mean the same                      | False, `UpToDate`           |
    | mean another commit                | True, `UpstreamMoved`       |
    | are gone from the repository       | True, `UpstreamGone`        |
    | the operator may not look          | Unknown, `UpstreamUnknown`  |

    An outage is no answer: what was known before stands.
    """
    if is_pinned(model) or not is_on_hub(model.uri):
        return _drifted("False", "CannotMove", f"{model.revision} is compared with nothing")
    if upstream is not None and upstream.refusal is not None and upstream.refusal.lasting:
        return _judge_refused(model, pin, upstream.refusal)
    if upstream is None or not upstream.commit:
        if before is not None:
            return _drifted(before.status, before.reason, before.message)
        return _drifted("Unknown", "NotAsked", f"The hub was not asked yet what {model.revision} is by now")
    if upstream.commit == pin.commit:
        return _drifted("False", "UpToDate", f"{model.revision} still is {pin.commit}")
    until = (
        "it can be looked at"
        if is_tracked(model)
        else "spec.model.revision or spec.model.refreshToken is changed"
    )
    message = f"{model.revision} of {model.uri} is {upstream.commit} by now"
    return _drifted("True", "UpstreamMoved", f"{message}; this service stays at {pin.commit} until {until}")


def _drifted(status: ConditionStatus, reason: str, message: str) -> Finding:
    return Finding(type=REVISION_DRIFTED, status=status, reason=reason, message=message)


def _judge_refused(model: ModelSource, pin: Pin, refusal: Refusal) -> Finding:
    if refusal.reason == contract.REASON_REVISION_NOT_FOUND:
        message = f"{model.uri} has no {model.revision} any more; this service stays at {pin.commit}"
        return _drifted("True", "UpstreamGone", message)
    if is_tracked(model):
        message = f"{model.revision} cannot be followed for now, this service stays at {pin.commit}"
        return _drifted("Unknown", "UpstreamUnknown", f"{message}: {refusal.message}")
    unseen = "the operator, which has no token, cannot see whether it moved"
    return _drifted("Unknown", "UpstreamUnknown", f"{model.revision}: {unseen}: {refusal.message}")


def judge_words(world: World, pin: Pin | None) -> tuple[Finding, ...]:
    """Of the words that spec has now; words without a commit have not drifted from any."""
    model = world.spec.model
    pinned = judge_pinned(model, pin)
    if pin is None:
        return (pinned,)
    before = find_condition(world.status, REVISION_DRIFTED) if speaks_of(world.status.model, pin) else None
    return pinned, judge_drifted(model, pin, world.upstream, before)


def find_condition(status: InferenceServiceStatus, kind: str) -> Condition | None:
    return next((one for one in status.conditions if one.type == kind), None)


def speaks_of(said: ModelStatus | None, pin: Pin) -> bool:
    """Whether status was written for this very line."""
    return said is not None and (said.requested_revision, said.resolved_revision) == (
        pin.revision,
        pin.commit,
    )


def model_status(world: World, pin: Pin | None) -> ModelStatus | None:
    """What is known of the line; of upstream the last that was, over restarts and outages."""
    before = world.status.model
    if pin is None:
        return before
    seen = world.upstream.commit if world.upstream is not None else ""
    if not seen and before is not None and speaks_of(before, pin):
        seen = before.upstream_revision
    return ModelStatus(
        requested_revision=pin.revision,
        resolved_revision=pin.commit,
        short_revision=pin.commit.removeprefix("sha256:")[: names.SHORT_REVISION_LENGTH],
        upstream_revision=seen,
        resolved_at=pin.resolved_at,
        manifest_digest=pin.manifest_digest,
        size_bytes=pin.size_bytes or None,
    )
