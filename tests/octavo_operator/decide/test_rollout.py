"""Rollout: what serves, what is on its way, what may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.history import next_number, prunable_revisions
from octavo_operator.decide.rollout import RolloutDecision, RolloutView, decide_rollout
from tests.octavo_operator.builders import make_deployment

A, B, C = "aaa", "bbb", "ccc"


def view(target: str | None, selected: str | None, ready: dict[str, int], **changes: object) -> RolloutView:
    made = RolloutView(
        target=target,
        selected=selected,
        proven=frozenset(),
        deployments={one: make_deployment(one, ready=count) for one, count in ready.items()},
        replicas=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "serving", "kept", "removed"),
    [
        pytest.param(view(A, None, {}), A, {A}, (), id="first revision takes the service at once"),
        pytest.param(view(A, A, {A: 0}), A, {A}, (), id="first revision is awaited"),
        pytest.param(view(A, A, {A: 1}, proven={A}), A, {A}, (), id="settled"),
        pytest.param(view(B, A, {A: 1}, proven={A}), A, {A, B}, (), id="candidate starts beside"),
        pytest.param(view(B, A, {A: 1, B: 0}, proven={A}), A, {A, B}, (), id="candidate is awaited"),
        pytest.param(
            view(B, A, {A: 1, B: 1}, proven={A}), B, {B}, (), id="candidate takes over, old one stays"
        ),
        pytest.param(
            view(B, B, {A: 1, B: 1}, proven={A, B}), B, {B}, (A,), id="old one goes in the next pass"
        ),
        pytest.param(view(C, A, {A: 1, B: 0}, proven={A}), A, {A, C}, (B,), id="the next edit wins"),
        pytest.param(view(A, A, {A: 1, B: 0}, proven={A}), A, {A}, (B,), id="revert in mid-rollout"),
        pytest.param(
            view(None, A, {A: 1, B: 0}, proven={A}), A, {A}, (B,), id="refused edit keeps what serves"
        ),
        pytest.param(view(None, None, {}), None, set(), (), id="refused from the start"),
        pytest.param(view(B, A, {A: 0}), B, {B}, (A,), id="one that never served makes room"),
        pytest.param(view(B, A, {A: 0}, proven={A}), A, {A, B}, (), id="one that served stays, even if down"),
        pytest.param(view(B, A, {}, proven={A}), B, {B}, (), id="one whose Deployment was deleted is gone"),
        pytest.param(
            view(B, A, {A: 3, B: 2}, proven={A}, replicas=3), A, {A, B}, (), id="not until it carries as much"
        ),
        pytest.param(
            view(B, A, {A: 2, B: 2}, proven={A}, replicas=3), B, {B}, (), id="as much as the old one carries"
        ),
        pytest.param(
            view(B, A, {A: 5, B: 2}, proven={A}, replicas=2), B, {B}, (), id="no more than there should be"
        ),
    ],
)
def test_rollout_decides(
    seen: RolloutView, serving: str | None, kept: set[str], removed: tuple[str, ...]
) -> None:
    decision = decide_rollout(seen)
    assert (decision.serving, set(decision.replicas), decision.remove) == (serving, kept, removed)


@pytest.mark.parametrize(
    ("seen", "newly_proven", "promoted"),
    [
        pytest.param(view(A, A, {A: 0}), False, False, id="not ready yet"),
        pytest.param(view(A, A, {A: 1}), True, True, id="ready for the first time"),
        pytest.param(view(A, A, {A: 0}, proven={A}), False, True, id="was ready once"),
        pytest.param(
            view(B, A, {A: 1, B: 0}, proven={A, B}), False, False, id="proven once, back, not ready yet"
        ),
    ],
)
def test_rollout_remembers_what_was_ready(seen: RolloutView, newly_proven: bool, promoted: bool) -> None:
    decision = decide_rollout(seen)
    assert (decision.newly_proven, decision.promoted) == (newly_proven, promoted)


revisions = st.sampled_from([A, B, C])
views = st.builds(
    lambda target, selected, proven, ready, replicas: view(
        target, selected, ready, proven=proven, replicas=replicas
    ),
    st.none() | revisions,
    st.none() | revisions,
    st.frozensets(revisions),
    st.dictionaries(revisions, st.integers(0, 4)),
    st.integers(1, 4),
)


@given(views)
def test_rollout_never_takes_the_traffic_from_what_serves_before_the_next_is_ready(seen: RolloutView) -> None:
    decision = decide_rollout(seen)
    served = seen.deployments.get(seen.selected or "")
    if served is None or seen.selected not in seen.proven or decision.serving == seen.selected:
        return
    assert decision.serving == seen.target
    assert seen.deployments[decision.serving].ready >= min(seen.replicas, max(1, served.ready))
    assert seen.selected not in decision.remove


@given(views)
def test_rollout_keeps_at_most_two_and_removes_only_what_is_there(seen: RolloutView) -> None:
    decision = decide_rollout(seen)
    assert len(decision.replicas) <= 2
    assert set(decision.remove) <= set(seen.deployments)
    assert not set(decision.remove) & {decision.serving, decision.target, *decision.replicas}
    assert set(decision.replicas.values()) <= {seen.replicas}


def step(seen: RolloutView, decision: RolloutDecision) -> RolloutView:
    """The cluster does what was decided, and every pod becomes ready."""
    there = dict(decision.replicas)
    old = {one: d for one, d in seen.deployments.items() if one not in decision.remove and one not in there}
    fresh = {one: make_deployment(one, wanted=count, ready=count) for one, count in there.items()}
    proven = set(seen.proven) | ({decision.target} if decision.newly_proven else set())
    return replace(
        seen,
        selected=decision.serving,
        proven=frozenset(one for one in proven if one),
        deployments={**old, **fresh},
    )


@given(views)
def test_rollout_ends_with_the_target_alone(seen: RolloutView) -> None:
    for _ in range(4):
        seen = step(seen, decide_rollout(seen))
    decision = decide_rollout(seen)
    assert step(seen, decision) == seen
    if seen.target is not None:
        assert decision.promoted
        assert set(seen.deployments) == {seen.target}


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 50), max_size=8),
    st.frozensets(st.text("abc", min_size=1), max_size=3),
    st.integers(0, 5),
)
def test_history_forgets_only_the_oldest_idle_ones(
    numbers: dict[str, int], in_use: frozenset[str], limit: int
) -> None:
    pruned = prunable_revisions(numbers, in_use=in_use, limit=limit)
    kept = [one for one in numbers if one not in pruned and one not in in_use]
    assert not set(pruned) & in_use
    assert len(kept) <= limit
    assert all(numbers[old] <= numbers[young] for old in pruned for young in kept)


def test_history_numbers_go_on() -> None:
    assert next_number({}) == 1
    assert next_number({"a": 4, "b": 2}) == 5
