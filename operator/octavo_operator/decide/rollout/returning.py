"""Back to one revision: after a promotion, a revert, a failure, or words that mean nothing yet.

What is to go loses its traffic first; its pods end some seconds later, when endpoints and routes have
moved. If it still carries requests and was not given up, the one to stay must first be able to carry them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo_operator.decide.rollout.exchange import next_move
from octavo_operator.decide.rollout.plan import share_by_number
from octavo_operator.decide.rollout.values import RolloutView
from octavo_operator.desired.rollout_record import RolloutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Where one pass of the way back leads."""

    replicas: dict[str, int]
    remove: tuple[str, ...] = ()
    records: dict[str, RolloutRecord]
    weights: dict[str, int]
    shared: bool = False
    due: tuple[float, ...] = ()


def return_to(view: RolloutView, serving: str, *, at_once: bool = False) -> Return:
    """`at_once` takes the traffic from the others whether or not the serving one is back to its size."""
    losers = sorted(view.deployed - {serving})
    carrying = [one for one in losers if view.has_traffic(one)]
    if carrying and not at_once and not is_back(view, serving, losers):
        back = keep_carrying(view, serving, carrying[0])
        # A third one is nobody's plan: a shared Service would send it requests that no share tells of.
        return replace(back, remove=tuple(one for one in losers if one != carrying[0]))
    return narrow(view, serving, losers, carrying)


def is_limited(view: RolloutView, revisions: list[str]) -> bool:
    """There is no room for both: each pod that comes takes the place of one that goes."""
    return view.policy.strategy == "InPlace" or any(view.record(one).exchange for one in revisions)


def is_back(view: RolloutView, serving: str, losers: list[str]) -> bool:
    spare = 1 if is_limited(view, [serving, *losers]) else 0
    return view.fleet(serving).lasting >= max(1, view.replicas - spare)


def keep_carrying(view: RolloutView, serving: str, loser: str) -> Return:
    stays, goes = view.fleet(serving), view.fleet(loser)
    if is_limited(view, [serving, loser]):
        move = next_move(view.replicas, goes, stays, cleared=True)
        replicas = {serving: max(stays.wanted, move.new), loser: move.old}
    else:
        replicas = {serving: view.replicas, loser: goes.wanted}
    share = view.record(loser).weight if view.policy.routed else share_by_number(stays, goes)
    share = min(share, 100 if stays.ready == 0 else 99)
    kept = replace(view.record(loser), weight=share, weight_at=_since(view, loser, share))
    return Return(
        replicas=replicas,
        records={loser: kept},
        weights={serving: 100 - share, loser: share},
        shared=view.shared,
    )


def _since(view: RolloutView, revision: str, weight: int) -> int | None:
    record = view.record(revision)
    return record.weight_at if record.weight == weight else int(view.now)


def narrow(view: RolloutView, serving: str, losers: list[str], carrying: list[str]) -> Return:
    lost = {one: replace(view.record(one), weight=0, weight_at=int(view.now)) for one in carrying}
    waiting = [one for one in losers if one in lost or view.now < view.settles_at(one)]
    held = sum(view.fleet(one).staying for one in losers)
    wanted = view.replicas
    if is_limited(view, [serving, *losers]):
        wanted = min(view.replicas, max(view.fleet(serving).wanted, view.replicas - held))
    settled = replace(view, records={**view.records, **lost})
    return Return(
        replicas={serving: wanted},
        remove=tuple(one for one in losers if one not in waiting),
        records=lost,
        weights={serving: 100},
        due=tuple(settled.settles_at(one) for one in waiting),
    )
