"""The budget of a revision, by the disruption controller's own arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.api import names
from octavo_operator.desired.disruption import build_disruption_budget
from tests.octavo_operator.builders import OWNER


def disruptions_allowed(max_unavailable: str, *, expected: int, healthy: int) -> int:
    """As the disruption controller computes it: percentages are rounded up."""
    percent = int(max_unavailable.removesuffix("%"))
    unavailable = -(-expected * percent // 100)
    return max(0, healthy - max(0, expected - unavailable))


def test_budget_counts_one_revision_and_lets_go_of_pods_that_are_not_ready() -> None:
    spec = build_disruption_budget(OWNER, "abc")["spec"]
    assert spec["selector"] == {"matchLabels": names.pod_selector(OWNER.name, "abc")}
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert "minAvailable" not in spec


@given(st.integers(1, 1000))
def test_budget_never_holds_up_a_drain_when_all_replicas_are_ready(replicas: int) -> None:
    budget = build_disruption_budget(OWNER, "abc")["spec"]["maxUnavailable"]
    allowed = disruptions_allowed(budget, expected=replicas, healthy=replicas)
    assert 1 <= allowed <= replicas / 10 + 1


def test_budget_protects_the_rest_when_a_replica_is_away() -> None:
    budget = build_disruption_budget(OWNER, "abc")["spec"]["maxUnavailable"]
    assert disruptions_allowed(budget, expected=3, healthy=2) == 0
