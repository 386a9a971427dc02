"""Exchange one for one: a pod of what serves ends before one of the candidate starts.

For clusters without room for one pod more. Never more pods than there should be, never fewer than one
less; with one replica that means none for a while, and status says so. The first pod of the candidate
must pass the gates before the second is exchanged, and before any request comes to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from octavo_operator.decide.rollout.plan import Plan, share_by_number
from octavo_operator.decide.rollout.values import Fleet, RolloutView


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Replicas of both after this pass."""

    old: int
    new: int
    promote: bool = False
    patient: bool = False


def plan_exchange(view: RolloutView, serving: str, target: str, *, cleared: bool) -> Plan:
    old, new = view.fleet(serving), view.fleet(target)
    strangers = sum(fleet.pods for one, fleet in view.fleets.items() if one not in (serving, target))
    old = replace(old, pods=old.pods + strangers)
    may_begin = view.gates.answers_recorded or new.wanted > 0
    passed = cleared and view.gates.load.state == "Passed"
    move = next_move(view.replicas, old, new, cleared=passed) if may_begin else hold(old, new)
    shared = cleared and new.ready > 0 and not move.promote and view.deployed <= {serving, target}
    return Plan(
        replicas={serving: move.old, target: move.new},
        record=view.record(target),
        strategy="InPlace",
        weight=share_by_number(old, new) if shared else 0,
        shared=shared,
        promote=move.promote,
        patient=move.patient,
        message=describe(view, {serving: old, target: new}, move, may_begin=may_begin),
    )


def next_move(replicas: int, old: Fleet, new: Fleet, *, cleared: bool) -> Move:
    """
    | new pods                         | old pods              | then                     |
    |----------------------------------|-----------------------|--------------------------|
    | more than have room              | any                   | give up those that wait  |
    | one is not ready, or not cleared | any                   | wait                     |
    | all but one, or the only one     | any                   | promote                  |
    | all ready                        | one is still ending   | wait, without a deadline |
    | all ready                        | a place is free       | start one more           |
    | all ready                        | none is free          | stop one                 |
    """
    fitting = max(new.ready, replicas - old.wanted)
    if new.wanted > fitting:
        return Move(old=old.wanted, new=fitting)
    if new.ready < new.wanted or (new.wanted > 0 and not cleared):
        return hold(old, new)
    if new.wanted >= max(1, replicas - 1):
        return Move(old=old.wanted, new=new.wanted, promote=True)
    if old.pods > old.wanted:
        return Move(old=old.wanted, new=new.wanted, patient=True)
    if old.wanted + new.wanted < replicas:
        return Move(old=old.wanted, new=new.wanted + 1)
    return Move(old=max(0, old.wanted - 1), new=new.wanted)


def hold(old: Fleet, new: Fleet) -> Move:
    return Move(old=old.wanted, new=new.wanted)


def describe(view: RolloutView, fleets: Mapping[str, Fleet], move: Move, *, may_begin: bool) -> str:
    serving, target = fleets
    old, new = fleets.values()
    if not may_begin:
        return f"Before revision {serving} is stopped, its answers to the probes are recorded"
    done = f"{new.ready} of {view.replicas} replicas were exchanged for revision {target}"
    if old.ready == 0:
        return f"{done}; nothing answers until it is ready: there is room for one at a time"
    return f"{done}, one for one; {old.ready} of revision {serving} are left"
