"""Which revision serves, which one is on its way, and what may go.

At most two revisions have traffic: the one that serves and the one that spec asks for. A candidate never
displaces what serves before it is ready and its gates have passed; one that fails is given up for what
served before it, and is not tried again until somebody edits spec.

| spec asks for       | serving one | then                                                            |
|---------------------|-------------|-----------------------------------------------------------------|
| nothing known (yet) | any         | keep it; whatever else was on its way goes                      |
| the serving one     | –           | keep it; whatever else was on its way goes                      |
| another, not failed | any         | by strategy: beside it, in its place, or by shares              |
| another, failed     | any         | keep it, or bring it back                                       |
| any                 | none        | start it; it serves when one pod is ready and its gates passed  |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from octavo_operator.decide.rollout.canary import plan_canary
from octavo_operator.decide.rollout.clearing import clear, fail, find_failure, join_evidence, verdict_of
from octavo_operator.decide.rollout.exchange import plan_exchange
from octavo_operator.decide.rollout.plan import Plan
from octavo_operator.decide.rollout.progress import (
    PATIENCE_SECONDS,
    deadline_of,
    fresh_record,
    is_late,
    late_message,
    track_progress,
    track_weight,
)
from octavo_operator.decide.rollout.returning import Return, return_to
from octavo_operator.decide.rollout.surge import plan_auto, plan_surge
from octavo_operator.decide.rollout.values import RolloutDecision, RolloutView, Verdict
from octavo_operator.desired.rollout_record import EMPTY_RECORD, FailedRollout, RolloutRecord


def decide_rollout(view: RolloutView) -> RolloutDecision:
    serving = find_serving(view)
    if serving is None:
        return decide_first(view)
    if view.target is None:
        message = f"What spec asks for cannot be made into a revision; revision {serving} goes on serving"
        return settle(view, serving, return_to(view, serving), reason="NoRevision", message=message)
    if view.target == serving:
        return decide_settled(view, serving)
    failed = view.record(view.target).failed
    if failed is not None and failed.terms == view.policy.terms:
        return give_up(view, serving, view.target, failed)
    return decide_forward(view, serving, view.target)


def find_serving(view: RolloutView) -> str | None:
    """The selected revision, if it was proven and its pods are there or can be made again."""
    one = view.selected
    if one is None or one not in view.proven:
        return None
    return one if one in view.deployed or one in view.stored else None


def decide_first(view: RolloutView) -> RolloutDecision:
    """Nothing serves that ever did: the target has nobody to wait for."""
    target = view.target
    if target is None:
        message = "What spec asks for cannot be made into a revision; no revision serves"
        gone = Return(replicas={}, remove=tuple(sorted(view.deployed)), records={}, weights={})
        return settle(view, None, gone, reason="NoRevision", message=message)
    record = track_progress(view, target, fresh_record(view, target))
    record, gate = clear(view, record, target)
    fleet = view.fleet(target)
    promoted = fleet.ready > 0 and bool(record.passed)
    ready = f"{fleet.ready} of {view.replicas} replicas of revision {target} are ready"
    reason, message = ("Serving", f"Revision {target} serves") if promoted else ("RolloutProgressing", ready)
    failed = None
    if gate.state == "Failed":
        reason, message = gate.reason, gate.message
        failed = record.failed or fail(view, gate)
        record = replace(record, failed=failed)
    elif not promoted and is_late(view, record):
        reason, message = "ProgressDeadlineExceeded", late_message(view, ready)
        failed = fail(view, Verdict(state="Failed", reason=reason, message=message))
    elif not promoted and gate.message:
        message = f"{ready}; {gate.message}"
    return RolloutDecision(
        serving=target if promoted else None,
        target=target,
        weights={target: 100} if promoted else {},
        replicas={target: view.replicas},
        remove=tuple(sorted(view.deployed - {target})),
        # Once it serves, what it was judged by is evidence, and there is nothing left to remember.
        records=changed_records(view, {target: EMPTY_RECORD if promoted else record}),
        newly_proven=promoted and target not in view.proven,
        promoted=promoted,
        evidence=join_evidence(record),
        failed=failed,
        gate=gate,
        reason=reason,
        message=message,
        again_seconds=wait_until(view, [deadline_of(view, record)] if not promoted else ()),
    )


def decide_settled(view: RolloutView, serving: str) -> RolloutDecision:
    back = return_to(view, serving)
    others = view.deployed - {serving}
    message = f"Revision {serving} serves"
    if others and back.weights.get(serving) != 100:
        message = f"{message} and takes the traffic back from {', '.join(sorted(others))}"
    return settle(view, serving, back, reason="Serving", message=message)


def settle(
    view: RolloutView, serving: str | None, back: Return, *, reason: str, message: str
) -> RolloutDecision:
    records = dict(back.records)
    if serving is not None and view.target == serving and not view.deployed - {serving}:
        records[serving] = EMPTY_RECORD
    return RolloutDecision(
        serving=serving,
        target=view.target,
        shared=back.shared,
        weights=back.weights,
        services=services_of(serving, back.replicas),
        replicas=back.replicas,
        remove=back.remove,
        records=changed_records(view, records),
        promoted=serving is not None and view.target == serving,
        reason=reason,
        message=message,
        again_seconds=wait_until(view, back.due),
    )


def give_up(view: RolloutView, serving: str, target: str, failed: FailedRollout) -> RolloutDecision:
    back = return_to(view, serving, at_once=True)
    before = back.records.get(target, view.record(target))
    record = RolloutRecord(
        exchange=before.exchange, weight=before.weight, weight_at=before.weight_at, failed=failed
    )
    decision = settle(
        view,
        serving,
        replace(back, records={**back.records, target: record}),
        reason=failed.reason,
        message=f"Revision {target} was given up, revision {serving} is kept: {failed.message}",
    )
    return replace(decision, failed=failed, gate=verdict_of(failed))


def decide_forward(view: RolloutView, serving: str, target: str) -> RolloutDecision:
    strangers = view.deployed - {serving, target}
    lost_track = view.shared and view.record(target).weight == 0
    if lost_track or any(view.has_traffic(one) for one in strangers):
        others = ", ".join(sorted(view.deployed - {serving}))
        message = f"Before revision {target} starts, revision {serving} takes the traffic back from {others}"
        return settle(view, serving, return_to(view, serving), reason="RolloutProgressing", message=message)
    record = track_progress(view, target, fresh_record(view, target))
    record, gate = clear(view, record, target)
    seen = replace(view, records={**view.records, target: record})
    plan = track_weight(seen, target, plan_strategy(seen, serving, target, cleared=bool(record.passed)))
    failed = find_failure(seen, plan, gate)
    if failed is not None:
        return give_up(seen, serving, target, failed)
    return follow(view, serving, target, plan, gate)


def plan_strategy(view: RolloutView, serving: str, target: str, *, cleared: bool) -> Plan:
    plans = {"Auto": plan_auto, "Surge": plan_surge, "InPlace": plan_exchange, "Canary": plan_canary}
    return plans[view.policy.strategy](view, serving, target, cleared=cleared)


def follow(view: RolloutView, serving: str, target: str, plan: Plan, gate: Verdict) -> RolloutDecision:
    """The plan as a decision; whoever is neither of the two goes."""
    if plan.promote:
        return promote(view, serving, target, plan, gate)
    strangers = sorted(view.deployed - {serving, target})
    gone = tuple(one for one in strangers if view.now >= view.settles_at(one))
    waits = [view.settles_at(one) for one in strangers if one not in gone]
    message = f"{plan.message}; {gate.message}" if gate.state == "Pending" and gate.message else plan.message
    return RolloutDecision(
        serving=serving,
        target=target,
        shared=plan.shared,
        weights={serving: 100 - plan.weight, target: plan.weight} if plan.weight else {serving: 100},
        services=services_of(serving, plan.replicas),
        replicas=plan.replicas,
        remove=gone,
        records=changed_records(view, {target: plan.record}),
        strategy=plan.strategy,
        # When all steps are done, the last one's share lasts until the candidate can carry all.
        step=min(plan.record.step + 1, len(view.policy.steps)) if plan.strategy == "Canary" else 0,
        gate=gate,
        reason="RolloutProgressing",
        message=message,
        again_seconds=wait_until(view, [*plan.due, *waits, *_deadlines(view, plan)]),
    )


def _deadlines(view: RolloutView, plan: Plan) -> list[float]:
    """When time alone may end it, or when a patient wait is to be written down again."""
    last = plan.record.progress_at or view.now
    return [last + PATIENCE_SECONDS] if plan.patient else [deadline_of(view, plan.record)]


def promote(view: RolloutView, serving: str, target: str, plan: Plan, gate: Verdict) -> RolloutDecision:
    """The traffic moves in this pass; the old pods end when it has."""
    old = replace(EMPTY_RECORD, weight=0, weight_at=int(view.now))
    new = replace(plan.record, weight=0, weight_at=None, step_at=None)
    return RolloutDecision(
        serving=target,
        target=target,
        weights={target: 100},
        services=services_of(target, plan.replicas),
        replicas={target: plan.replicas[target]},
        remove=(),
        records=changed_records(view, {serving: old, target: new}),
        newly_proven=target not in view.proven,
        promoted=True,
        strategy=plan.strategy,
        gate=gate,
        evidence=join_evidence(plan.record),
        reason="Promoted",
        message=f"Revision {target} took over from {serving}",
        again_seconds=0.0,
    )


def services_of(serving: str | None, replicas: Iterable[str]) -> tuple[str, ...]:
    """A candidate has a Service of its own; what a route points at has one anyway."""
    return tuple(sorted(one for one in replicas if one != serving))


def changed_records(view: RolloutView, records: dict[str, RolloutRecord]) -> dict[str, RolloutRecord]:
    """Those to be written. One that spec no longer asks for is forgotten when its pods are gone."""
    gone = {
        one: EMPTY_RECORD
        for one in view.records
        if one != view.target and one not in view.deployed and one not in records
    }
    after = {**gone, **records}
    return {one: record for one, record in after.items() if record != view.record(one)}


def wait_until(view: RolloutView, moments: Iterable[float]) -> float | None:
    """Seconds until the first of some moments, a little later so that it has come."""
    later = [moment - view.now for moment in moments if moment > view.now]
    return min(later) + 0.1 if later else None
