"""Whether a candidate may get requests, and what makes it one to be given up."""

from __future__ import annotations

from dataclasses import replace

from octavo_operator.decide.rollout.plan import Plan
from octavo_operator.decide.rollout.progress import is_late, late_message
from octavo_operator.decide.rollout.values import RolloutView, Verdict
from octavo_operator.desired.rollout_record import FailedRollout, RolloutRecord


def clear(view: RolloutView, record: RolloutRecord, target: str) -> tuple[RolloutRecord, Verdict]:
    """Load and quality gate together. Once both let it pass, only a pod with other files can change that."""
    if record.passed and view.gates.load.state == "Failed":
        return record, view.gates.load
    if record.passed:
        return record, Verdict(state="Passed", reason="GatePassed", message=record.passed)
    if record.failed is not None and record.failed.terms == view.policy.terms:
        return record, verdict_of(record.failed)
    if view.fleet(target).ready == 0:
        return record, Verdict(state="Pending", reason="NotReady", message="")
    for verdict in (view.gates.load, view.gates.quality):
        if verdict.state != "Passed":
            return record, verdict
    words = "; ".join(one.message for one in (view.gates.load, view.gates.quality) if one.message)
    words = words or "ready"
    passed = replace(record, passed=words, progress_at=int(view.now))
    return passed, Verdict(state="Passed", reason="GatePassed", message=words)


def verdict_of(failed: FailedRollout) -> Verdict:
    return Verdict(state="Failed", reason=failed.reason, message=failed.message)


def fail(view: RolloutView, verdict: Verdict, exit_code: int | None = None) -> FailedRollout:
    return FailedRollout(
        reason=verdict.reason,
        message=verdict.message,
        terms=view.policy.terms,
        at=int(view.now),
        exit_code=exit_code,
    )


def find_failure(view: RolloutView, plan: Plan, gate: Verdict) -> FailedRollout | None:
    if view.trouble is not None and not plan.promote:
        told = Verdict(state="Failed", reason=view.trouble.reason, message=view.trouble.message)
        return fail(view, told, view.trouble.exit_code)
    if gate.state == "Failed":
        return fail(view, gate)
    if plan.refusal is not None:
        return fail(view, plan.refusal)
    if plan.promote or plan.patient or not is_late(view, plan.record):
        return None
    words = f"{plan.message}; {gate.message}" if gate.message and gate.state == "Pending" else plan.message
    late = Verdict(state="Failed", reason="ProgressDeadlineExceeded", message=late_message(view, words))
    return fail(view, late)


def join_evidence(record: RolloutRecord) -> str:
    return "; ".join(words for words in (record.passed, record.shared_passed) if words)
