"""Surge: the candidate starts beside what serves, all of it, and takes over in one move.

`Auto` begins like this. If a pod of the candidate finds no node for a minute, there is no room for both,
and it goes on by exchanging one for one. Neither nodes nor anybody else's pods are read for that.
"""

from __future__ import annotations

from dataclasses import replace

from octavo_operator.decide.rollout.exchange import plan_exchange
from octavo_operator.decide.rollout.plan import Plan, carries_enough, shares_of
from octavo_operator.decide.rollout.values import NO_ROOM_SECONDS, RolloutView


def plan_auto(view: RolloutView, serving: str, target: str, *, cleared: bool) -> Plan:
    record = view.record(target)
    if record.exchange:
        return plan_exchange(view, serving, target, cleared=cleared)
    if view.no_room_since is None:
        return plan_surge(view, serving, target, cleared=cleared)
    exchange_at = view.no_room_since + NO_ROOM_SECONDS
    if view.now < exchange_at:
        plan = plan_surge(view, serving, target, cleared=cleared)
        words = f"{plan.message}; no node takes a pod of it, after {NO_ROOM_SECONDS} s pods are exchanged"
        return replace(plan, message=words, due=(exchange_at,))
    records = {**view.records, target: replace(record, exchange=True)}
    return plan_exchange(replace(view, records=records), serving, target, cleared=cleared)


def plan_surge(view: RolloutView, serving: str, target: str, *, cleared: bool) -> Plan:
    old, new = view.fleet(serving), view.fleet(target)
    enough = carries_enough(old, new, view.replicas)
    promote = cleared and enough and view.gates.load.state == "Passed"
    # An edit from Canary in mid-rollout: what has a share keeps it until it gets all.
    weight = view.record(target).weight
    share = shares_of(view, serving, target, weight, cleared=cleared) if weight and not promote else 0
    ready = f"{new.ready} of {view.replicas} replicas of revision {target} are ready"
    return Plan(
        replicas={serving: view.replicas, target: view.replicas},
        record=view.record(target),
        strategy="Surge",
        weight=share,
        shared=share > 0 and not view.policy.routed,
        promote=promote,
        message=f"{ready}; revision {serving} serves meanwhile",
    )
