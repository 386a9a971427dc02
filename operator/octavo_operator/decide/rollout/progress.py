"""How far a candidate has come, and how long it may take to come further."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from octavo_operator.decide.rollout.plan import Plan
from octavo_operator.decide.rollout.values import RolloutView
from octavo_operator.desired.rollout_record import RolloutRecord

PATIENCE_SECONDS: Final = 60
"""How often a wait that has its own time is noted as progress."""


def fresh_record(view: RolloutView, target: str) -> RolloutRecord:
    """What is remembered; after a failure under other terms everything begins anew."""
    record = view.record(target)
    if record.failed is None or record.failed.terms == view.policy.terms:
        return record
    return RolloutRecord(weight=record.weight, weight_at=record.weight_at)


def track_progress(view: RolloutView, target: str, record: RolloutRecord) -> RolloutRecord:
    """The deadline runs from the last time that more pods were ready than ever before."""
    ready = view.fleet(target).ready
    if record.progress_at is not None and ready <= record.ready:
        return record
    return replace(record, ready=max(ready, record.ready), progress_at=int(view.now))


def track_weight(view: RolloutView, target: str, plan: Plan) -> Plan:
    before, record = view.record(target), plan.record
    if plan.patient:
        record = replace(record, progress_at=each_minute(before.progress_at, view.now))
    moved_on = record.step > before.step or record.exchange != before.exchange
    if moved_on or plan.replicas[target] > view.fleet(target).wanted:
        record = replace(record, progress_at=int(view.now))
    if plan.weight != before.weight:
        record = replace(record, weight=plan.weight, weight_at=int(view.now))
    return replace(plan, record=record)


def each_minute(before: int | None, now: float) -> int:
    """A long step is progress all the while, but is not written down more often than that."""
    return int(now) if before is None or now - before >= PATIENCE_SECONDS else before


def deadline_of(view: RolloutView, record: RolloutRecord) -> float:
    since = view.now if record.progress_at is None else record.progress_at
    return since + view.policy.deadline_seconds


def is_late(view: RolloutView, record: RolloutRecord) -> bool:
    return view.now >= deadline_of(view, record)


def late_message(view: RolloutView, words: str) -> str:
    return (
        f"{words}; no progress within spec.rollout.progressDeadlineSeconds ({view.policy.deadline_seconds})"
    )
