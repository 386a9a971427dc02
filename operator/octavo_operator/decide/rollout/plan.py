"""What a strategy wants of one pass, before it is made into a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo_operator.decide.rollout.values import Fleet, RolloutView, Verdict
from octavo_operator.desired.rollout_record import RolloutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One pass of a rollout from the serving revision to the candidate."""

    replicas: Mapping[str, int]
    record: RolloutRecord
    """The candidate's."""
    strategy: str
    weight: int = 0
    """Percent of the requests that the candidate is to have."""
    shared: bool = False
    promote: bool = False
    patient: bool = False
    """What is waited for has its own time: the progress deadline does not run."""
    refusal: Verdict | None = None
    """Why the candidate must be given up."""
    message: str
    due: tuple[float, ...] = ()
    """Moments at which time alone changes the plan."""


def share_by_number(old: Fleet, new: Fleet) -> int:
    """Percent of the requests that the new one gets where each ready pod gets as many; never 0.

    >>> share_by_number(Fleet(ready=3), Fleet(ready=1))
    25
    """
    total = old.ready + new.ready
    return max(1, round(100 * new.ready / total)) if new.ready else 0


def carries_enough(old: Fleet, new: Fleet, replicas: int) -> bool:
    """Whether the new one can take over what the old one carries now."""
    return new.lasting >= max(1, min(replicas, max(1, old.ready)))


def shares_of(view: RolloutView, serving: str, target: str, weight: int, *, cleared: bool) -> int:
    """What the candidate really gets; nothing while others are about whom a shared Service would select."""
    new = view.fleet(target)
    if not cleared or new.ready == 0:
        return 0
    if view.policy.routed:
        return weight
    return share_by_number(view.fleet(serving), new) if view.deployed <= {serving, target} else 0
