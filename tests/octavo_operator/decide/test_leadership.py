"""Who may act, by the Lease alone."""

from __future__ import annotations

from typing import Any

import pytest

from octavo_operator.decide.leadership import (
    GIVE_UP_SECONDS,
    LEASE_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    LeaseView,
    decide_claim,
    parse_lease,
)
from octavo_operator.desired.lease import build_lease
from tests.octavo_operator.builders import NOW


def lease(holder: str) -> LeaseView:
    return LeaseView(holder=holder, renewed="then", seconds=30)


@pytest.mark.parametrize(
    ("view", "unchanged", "step", "reason"),
    [
        pytest.param(None, 0.0, "Take", "Absent", id="no Lease"),
        pytest.param(lease("me"), 0.0, "Renew", "Ours", id="ours"),
        pytest.param(lease("me"), 1e6, "Renew", "Ours", id="ours, of an earlier start"),
        pytest.param(lease(""), 0.0, "Take", "Released", id="given back"),
        pytest.param(lease("other"), 29.9, "Wait", "Held", id="renewed a moment ago"),
        pytest.param(lease("other"), 30.0, "Take", "Expired", id="left behind"),
    ],
)
def test_claim_is_decided(view: LeaseView | None, unchanged: float, step: str, reason: str) -> None:
    claim = decide_claim(view, "me", unchanged_seconds=unchanged)
    assert (claim.step, claim.reason) == (step, reason)


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": None}], ids=str)
def test_emptied_lease_is_nobodys(spec: dict[str, Any] | None) -> None:
    view = parse_lease({"spec": spec})
    assert (view.holder, view.seconds) == ("", LEASE_SECONDS)


def test_holder_gives_up_before_another_may_take() -> None:
    assert RENEW_SECONDS + 2 * RETRY_SECONDS < GIVE_UP_SECONDS < LEASE_SECONDS


def test_lease_keeps_its_history() -> None:
    first = build_lease("octavo-system", "a", seconds=30, now=NOW, before=None)
    assert "resourceVersion" not in first["metadata"]
    assert first["spec"]["leaseTransitions"] == 0
    stored = {**first, "metadata": {**first["metadata"], "resourceVersion": "7"}}
    again = build_lease("octavo-system", "a", seconds=30, now=NOW.replace(hour=9), before=stored)
    assert again["metadata"]["resourceVersion"] == "7"
    assert again["spec"]["acquireTime"] == first["spec"]["acquireTime"] < again["spec"]["renewTime"]
    other = build_lease("octavo-system", "b", seconds=30, now=NOW.replace(hour=10), before=stored)
    assert (other["spec"]["holderIdentity"], other["spec"]["leaseTransitions"]) == ("b", 1)
    assert other["spec"]["acquireTime"] == other["spec"]["renewTime"]
