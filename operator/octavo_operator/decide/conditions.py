"""The conditions, by kstatus' rules: what is true of this generation, why, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from octavo_operator.api.status import MAX_CONDITION_LENGTH, Condition, ConditionStatus
from octavo_operator.decide.failures import Failure
from octavo_operator.decide.rollout import RolloutDecision
from octavo_operator.decide.target import Refusal, Target

READY: Final = "Ready"
AVAILABLE: Final = "Available"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
MODEL_RESOLVED: Final = "ModelResolved"
MEMORY_PLANNED: Final = "MemoryPlanned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition before it is given its times."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingView:
    """How the pods do, beside what the rollout decided."""

    ready: int
    """Ready pods that requests come to."""
    wanted: int
    failure: Failure | None
    """Of the revision that spec asks for."""
    deadline_exceeded: bool
    suspended: bool = False
    sharing: str = ""
    """Revisions that have a share of the requests beside the serving one."""


def judge(target: Target, rollout: RolloutDecision, view: ServingView) -> tuple[Finding, ...]:
    """
    | state of what spec asks for                   | Ready   | Reconciling | Stalled |
    |-----------------------------------------------|---------|-------------|---------|
    | refused, somebody must change something       | False   | False       | True    |
    | refused, another try may do (hub unreachable) | False   | True        | False   |
    | serves, at least one replica ready            | True    | False       | False   |
    | on its way                                    | False   | True        | False   |
    | failed for good, or past its deadline         | False   | False       | True    |
    | suspended before it could serve               | False   | False       | False   |

    Available says whether any revision answers, whatever becomes of the new one.
    """
    ready = _judge_ready(target, rollout, view)
    stuck = ready.status != "True" and _is_stuck(target, rollout, view)
    moving = ready.status != "True" and not stuck and not view.suspended
    return (
        ready,
        judge_available(rollout.serving, view.ready),
        _tell(RECONCILING, moving, ready),
        _tell(STALLED, stuck, ready),
        judge_resolved(target),
        judge_planned(target),
    )


def _judge_ready(target: Target, rollout: RolloutDecision, view: ServingView) -> Finding:
    if target.refusal is not None:
        return Finding(
            type=READY, status="False", reason=target.refusal.reason, message=target.refusal.message
        )
    if view.suspended and rollout.promoted and view.sharing:
        back = f"revision {rollout.serving} takes the traffic back from {view.sharing}"
        message = f"spec.suspend is true; without it: {back}"
        return Finding(type=READY, status="False", reason="Suspended", message=message)
    if rollout.promoted and view.ready > 0:
        message = f"{rollout.message}; {view.ready} of {view.wanted} replicas are ready"
        return Finding(type=READY, status="True", reason="Serving", message=message)
    if view.suspended and not rollout.promoted:
        message = f"spec.suspend is true; without it: {rollout.message}"
        return Finding(type=READY, status="False", reason="Suspended", message=message)
    if rollout.failed is not None:
        message = rollout.message
        return Finding(type=READY, status="False", reason=rollout.failed.reason, message=message)
    if view.failure is not None:
        return Finding(type=READY, status="False", reason=view.failure.reason, message=view.failure.message)
    if view.deadline_exceeded:
        message = f"{rollout.message}; no progress within spec.rollout.progressDeadlineSeconds"
        return Finding(type=READY, status="False", reason="ProgressDeadlineExceeded", message=message)
    if rollout.promoted:
        message = f"{rollout.message}, but none of its {view.wanted} replicas is ready"
        return Finding(type=READY, status="False", reason="NoReadyReplica", message=message)
    return Finding(type=READY, status="False", reason=rollout.reason, message=rollout.message)


def _is_stuck(target: Target, rollout: RolloutDecision, view: ServingView) -> bool:
    if target.refusal is not None:
        return target.refusal.lasting
    if view.suspended and not rollout.promoted:
        return False
    if rollout.failed is not None:
        return True
    return view.deadline_exceeded or (view.failure is not None and view.failure.lasting)


def judge_available(serving: str | None, ready: int) -> Finding:
    if ready > 0:
        message = f"Revision {serving} answers with {ready} ready replicas"
        return Finding(type=AVAILABLE, status="True", reason="ReplicaReady", message=message)
    message = f"No replica of revision {serving} is ready" if serving else "No revision serves"
    return Finding(type=AVAILABLE, status="False", reason="NoReadyReplica", message=message)


def _tell(kind: str, holds: bool, ready: Finding) -> Finding:
    """Reconciling and Stalled repeat why Ready is not True; otherwise they say that all is settled."""
    if holds:
        return Finding(type=kind, status="True", reason=ready.reason, message=ready.message)
    settled = "Settled" if ready.status == "True" else ready.reason
    return Finding(type=kind, status="False", reason=settled, message="")


def judge_resolved(target: Target) -> Finding:
    if target.pin is not None:
        message = f"{target.pin.uri} at {target.pin.revision} is commit {target.pin.commit}"
        return Finding(type=MODEL_RESOLVED, status="True", reason="Resolved", message=message)
    assert target.refusal is not None
    status: ConditionStatus = "False" if target.refusal.lasting else "Unknown"
    return Finding(
        type=MODEL_RESOLVED, status=status, reason=target.refusal.reason, message=target.refusal.message
    )


def judge_planned(target: Target) -> Finding:
    if target.revision is not None:
        plan = target.revision.plan
        message = (
            f"{plan.kv_blocks} blocks hold {plan.kv_tokens} tokens: "
            f"{plan.full_length_sequences} sequences of {plan.max_model_len}"
        )
        return Finding(type=MEMORY_PLANNED, status="True", reason="Planned", message=message)
    if target.pin is None or target.refusal is None:
        message = "The model must be resolved first"
        return Finding(type=MEMORY_PLANNED, status="Unknown", reason="ModelNotResolved", message=message)
    status: ConditionStatus = "False" if target.refusal.lasting else "Unknown"
    return Finding(
        type=MEMORY_PLANNED, status=status, reason=target.refusal.reason, message=target.refusal.message
    )


def judge_first_visit() -> tuple[Finding, ...]:
    """Said at once when a new generation is seen and its words must be looked up first."""
    message = "The words of spec.model are being resolved"
    return (
        Finding(type=READY, status="Unknown", reason="Resolving", message=message),
        Finding(type=RECONCILING, status="True", reason="Resolving", message=message),
        Finding(type=STALLED, status="False", reason="Resolving", message=""),
        Finding(type=MODEL_RESOLVED, status="Unknown", reason="Resolving", message=message),
        Finding(type=MEMORY_PLANNED, status="Unknown", reason="ModelNotResolved", message=message),
    )


def judge_invalid(reason: str, message: str) -> tuple[Finding, ...]:
    """For what cannot even be read; nothing is done until somebody edits it."""
    return (
        Finding(type=READY, status="False", reason=reason, message=message),
        Finding(type=RECONCILING, status="False", reason=reason, message=""),
        Finding(type=STALLED, status="True", reason=reason, message=message),
    )


def obstruct(findings: tuple[Finding, ...], obstacle: Refusal | None) -> tuple[Finding, ...]:
    """Where all is well but for one thing that the cluster lacks, that is why it is not Ready."""
    ready = next(one for one in findings if one.type == READY)
    if obstacle is None or ready.status != "True":
        return findings
    refused = {"reason": obstacle.reason, "message": obstacle.message}
    changed = {
        READY: Finding(type=READY, status="False", **refused),
        STALLED: Finding(type=STALLED, status="True", **refused),
        RECONCILING: Finding(type=RECONCILING, status="False", reason=obstacle.reason, message=""),
    }
    return tuple(changed.get(one.type, one) for one in findings)


def date_conditions(
    findings: Iterable[Finding], previous: Iterable[Condition], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Times for findings: the old transition time wherever the status is what it was.

    A condition that was not judged anew is kept as it is, with the generation it was judged for.
    """
    known = {condition.type: condition for condition in previous}
    judged = {finding.type: _date(finding, known.get(finding.type), generation, now) for finding in findings}
    return tuple({**known, **judged}.values())


def _date(finding: Finding, before: Condition | None, generation: int, now: datetime) -> Condition:
    same = before is not None and before.status == finding.status
    return Condition(
        type=finding.type,
        status=finding.status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if same and before else format_time(now),
        reason=finding.reason,
        message=storable(finding.message, MAX_CONDITION_LENGTH),
    )


def storable(text: str, most: int) -> str:
    """As the API server gives it back: not longer than the field, and without halves of characters.

    >>> storable("2\\ud800 is too many", 6)
    '2? is…'
    """
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"


def format_time(moment: datetime) -> str:
    """As Kubernetes writes times.

    >>> from datetime import UTC
    >>> format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
