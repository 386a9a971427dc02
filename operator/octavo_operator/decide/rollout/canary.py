"""Canary: the candidate gets a growing share of the requests, each share held for a while.

With an HTTPRoute the shares are exact. Without one each ready pod gets as many requests as any other, so
that the numbers of pods make the shares: rounded, and status says what they really are. The share is
judged by the SLO gate at the end of each step, once: looking again and again would find chance.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.units import ceil_div
from octavo_operator.decide.rollout.plan import Plan, shares_of
from octavo_operator.decide.rollout.surge import plan_surge
from octavo_operator.decide.rollout.values import CanaryStep, Fleet, RolloutView, Verdict
from octavo_operator.desired.rollout_record import RolloutRecord


def plan_canary(view: RolloutView, serving: str, target: str, *, cleared: bool) -> Plan:
    record, steps = view.record(target), view.policy.steps
    if record.step < len(steps):
        return plan_step(view, serving, target, steps[record.step], cleared=cleared)
    plan = plan_surge(view, serving, target, cleared=cleared)
    # What the last step gave up of the old one stays so: it is the candidate that must carry all now.
    old = min(view.replicas, view.fleet(serving).wanted) if record.weight else view.replicas
    return replace(plan, replicas={**plan.replicas, serving: old}, strategy="Canary")


def split_replicas(replicas: int, weight: int, *, routed: bool) -> tuple[int, int]:
    """Pods of the old and of the new one for a share of the requests.

    >>> split_replicas(4, 10, routed=True), split_replicas(9, 10, routed=False)
    ((4, 1), (9, 1))
    >>> split_replicas(2, 50, routed=False), split_replicas(3, 75, routed=False)
    ((2, 2), (1, 3))
    """
    if routed:
        return replicas, max(1, ceil_div(replicas * weight, 100))
    if weight <= 50:
        return replicas, max(1, round(replicas * weight / (100 - weight)))
    return max(1, round(replicas * (100 - weight) / weight)), replicas


def plan_step(view: RolloutView, serving: str, target: str, step: CanaryStep, *, cleared: bool) -> Plan:
    old, new = view.fleet(serving), view.fleet(target)
    few, many = split_replicas(view.replicas, step.weight, routed=view.policy.routed)
    # A third one that is still about keeps the share away, and the old one has to carry all.
    reached = new.lasting >= many and shares_of(view, serving, target, step.weight, cleared=cleared) > 0
    # The old one shrinks only when the new one carries its share.
    kept = few if reached else max(few, min(old.wanted, view.replicas))
    record = _begin(view.record(target), view) if reached else view.record(target)
    wanted = step.weight if reached else record.weight
    weight = shares_of(view, serving, target, wanted, cleared=cleared)
    shared = weight > 0 and not view.policy.routed
    plan = Plan(
        replicas={serving: kept, target: many},
        record=record,
        strategy="Canary",
        weight=weight,
        shared=shared,
        patient=reached,
        message=_describe(view, target, step, new, many, weight),
    )
    return _finish_step(view, plan, step) if reached else plan


def _begin(record: RolloutRecord, view: RolloutView) -> RolloutRecord:
    return record if record.step_at is not None else replace(record, step_at=int(view.now))


def _finish_step(view: RolloutView, plan: Plan, step: CanaryStep) -> Plan:
    record, slo = plan.record, view.gates.slo
    assert record.step_at is not None
    ends_at = max(record.step_at, view.gates.slo_since or 0.0) + step.seconds
    if view.now < ends_at or plan.weight == 0:
        return replace(plan, due=(ends_at,))
    if slo.state == "Pending":
        return plan
    if slo.state == "Failed":
        return replace(plan, refusal=slo)
    after = replace(record, step=record.step + 1, step_at=None, shared_passed=evidence_of(slo))
    return replace(plan, record=after)


def evidence_of(slo: Verdict) -> str:
    return f"{slo.reason}: {slo.message}" if slo.message else ""


def _describe(view: RolloutView, target: str, step: CanaryStep, new: Fleet, many: int, weight: int) -> str:
    number = f"Canary step {view.record(target).step + 1} of {len(view.policy.steps)}"
    asked = f"{step.weight} % of the requests for {step.seconds} s"
    if weight == 0:
        return f"{number}, {asked}: {new.ready} of {many} replicas of revision {target} are ready"
    real = "" if weight == step.weight else f" (really {weight} %, by the number of replicas)"
    return f"{number}, {asked}{real}: {new.ready} of {many} replicas of revision {target} are ready"
