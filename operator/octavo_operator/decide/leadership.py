"""Who may act: at most one operator at a time, by a Lease that its holder renews.

A Lease counts as left behind when the very same record was seen for as long as it lasts, by the clock of
whoever looks: clocks of two machines are never compared.
Source: leader election of Kubernetes' own controllers (client-go).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

LEASE_SECONDS: Final = 40
"""After a crash nobody acts for so long, unless it is the same pod that starts again."""
RENEW_SECONDS: Final = 10.0
GIVE_UP_SECONDS: Final = 30.0
"""Since the last renewal: what is on its way to the API server has the rest of the Lease to arrive."""
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """Who holds the Lease, and the record's latest change."""

    holder: str
    """Empty: it was given back."""
    renewed: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What to do about the Lease."""

    step: Literal["Take", "Renew", "Wait"]
    reason: str


def parse_lease(body: Mapping[str, Any]) -> LeaseView:
    """A Lease that somebody emptied is nobody's."""
    spec = body.get("spec") or {}
    return LeaseView(
        holder=spec.get("holderIdentity") or "",
        renewed=spec.get("renewTime") or "",
        seconds=float(spec.get("leaseDurationSeconds") or LEASE_SECONDS),
    )


def decide_claim(lease: LeaseView | None, me: str, *, unchanged_seconds: float) -> Claim:
    """
    | the Lease                                | step    | reason     |
    |------------------------------------------|---------|------------|
    | is not there                             | `Take`  | `Absent`   |
    | is ours, perhaps of an earlier start     | `Renew` | `Ours`     |
    | was given back                           | `Take`  | `Released` |
    | another's, unchanged for as long as it lasts | `Take` | `Expired` |
    | another's                                | `Wait`  | `Held`     |
    """
    if lease is None:
        return Claim(step="Take", reason="Absent")
    if lease.holder == me:
        return Claim(step="Renew", reason="Ours")
    if not lease.holder:
        return Claim(step="Take", reason="Released")
    if unchanged_seconds >= lease.seconds:
        return Claim(step="Take", reason="Expired")
    return Claim(step="Wait", reason="Held")
