"""Rollout: what serves, what is on its way, what may go, and what is remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.history import next_number, prunable_revisions
from octavo_operator.decide.rollout import RolloutDecision, RolloutView, decide_rollout
from octavo_operator.decide.rollout.values import (
    CanaryStep,
    Fleet,
    GateFacts,
    RolloutPolicy,
    Trouble,
    Verdict,
)
from octavo_operator.desired.rollout_record import FailedRollout, RolloutRecord, parse_record, render_record
from tests.octavo_operator.decide.rollout.play import PASSED, Play, settled

A, B, C = "aaa", "bbb", "ccc"
SURGE = RolloutPolicy(strategy="Surge", terms="t")
IN_PLACE = replace(SURGE, strategy="InPlace")
CANARY = replace(SURGE, strategy="Canary", steps=(CanaryStep(weight=10, seconds=300),))
ROUTED = replace(CANARY, routed=True)
BAD = Verdict(state="Failed", reason="QualityGateFailed", message="1 of 2 probes match")


def view(target: str | None, selected: str | None, ready: dict[str, int], **changes: Any) -> RolloutView:
    replicas = changes.get("replicas", 1)
    made = RolloutView(
        target=target,
        selected=selected,
        fleets={one: Fleet(wanted=replicas, ready=count, pods=replicas) for one, count in ready.items()},
        replicas=1,
        policy=SURGE,
    )
    return replace(made, **{**changes, "proven": frozenset(changes.get("proven", ()))})


@pytest.mark.parametrize(
    ("seen", "serving", "kept", "removed"),
    [
        pytest.param(view(A, None, {}), None, {A}, (), id="first revision starts, nobody serves yet"),
        pytest.param(view(A, None, {A: 1}), A, {A}, (), id="first revision serves when it is ready"),
        pytest.param(view(A, A, {A: 1}, proven={A}), A, {A}, (), id="settled"),
        pytest.param(view(B, A, {A: 1}, proven={A}), A, {A, B}, (), id="candidate starts beside"),
        pytest.param(view(B, A, {A: 1, B: 0}, proven={A}), A, {A, B}, (), id="candidate is awaited"),
        pytest.param(
            view(B, A, {A: 1, B: 1}, proven={A}), B, {B}, (), id="candidate takes over, old one stays"
        ),
        pytest.param(view(B, B, {A: 1, B: 1}, proven={A, B}), B, {B}, (A,), id="old one goes when settled"),
        pytest.param(view(C, A, {A: 1, B: 0}, proven={A}), A, {A, C}, (B,), id="the next edit wins"),
        pytest.param(view(A, A, {A: 1, B: 0}, proven={A}), A, {A}, (B,), id="revert in mid-rollout"),
        pytest.param(
            view(None, A, {A: 1, B: 0}, proven={A}), A, {A}, (B,), id="refused edit keeps what serves"
        ),
        pytest.param(view(None, None, {}), None, set(), (), id="refused from the start"),
        pytest.param(view(B, A, {A: 0}), None, {B}, (A,), id="one that never served makes room"),
        pytest.param(view(B, A, {A: 0}, proven={A}), A, {A, B}, (), id="one that served stays, even if down"),
        pytest.param(view(B, A, {}, proven={A}), None, {B}, (), id="one of which nothing is left is gone"),
        pytest.param(
            view(B, A, {}, proven={A}, stored=frozenset({A})),
            A,
            {A, B},
            (),
            id="one whose pods are lost is remade",
        ),
        pytest.param(
            view(B, A, {A: 3, B: 2}, proven={A}, replicas=3), A, {A, B}, (), id="not until it carries as much"
        ),
        pytest.param(
            view(B, A, {A: 2, B: 2}, proven={A}, replicas=3), B, {B}, (), id="as much as the old one carries"
        ),
        pytest.param(view(B, A, {A: 5, B: 2}, proven={A}, replicas=2), B, {B}, (), id="no more than needed"),
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
        pytest.param(view(A, None, {A: 0}), False, False, id="not ready yet"),
        pytest.param(view(A, None, {A: 1}), True, True, id="ready for the first time"),
        pytest.param(view(A, A, {A: 0}, proven={A}), False, True, id="was ready once"),
        pytest.param(view(B, A, {A: 1, B: 0}, proven={A, B}), False, False, id="proven once, not ready yet"),
    ],
)
def test_rollout_remembers_what_was_ready(seen: RolloutView, newly_proven: bool, promoted: bool) -> None:
    decision = decide_rollout(seen)
    assert (decision.newly_proven, decision.promoted) == (newly_proven, promoted)


def test_old_pods_go_only_some_seconds_after_the_traffic() -> None:
    play = settled(SURGE)
    play.target = "b"
    while play.selected == "a":
        play.round()
    moved_at = play.now
    assert "a" in play.wanted
    while "a" in play.wanted:
        play.round()
    assert play.now - moved_at >= 4


@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        pytest.param(GateFacts(load=replace(BAD, reason="WrongCommit")), "WrongCommit", id="load"),
        pytest.param(GateFacts(quality=BAD), "QualityGateFailed", id="quality"),
    ],
)
def test_candidate_is_given_up_when_a_gate_fails(gates: GateFacts, reason: str) -> None:
    decision = decide_rollout(view(B, A, {A: 1, B: 1}, proven={A}, gates=gates))
    assert decision.failed is not None
    assert (decision.failed.reason, decision.serving, decision.remove) == (reason, A, (B,))
    assert decision.weights == {A: 100}
    assert decision.records[B].failed == decision.failed
    assert "revision aaa is kept" in decision.message


@pytest.mark.parametrize("state", ["load", "quality"])
def test_candidate_has_no_traffic_while_a_gate_is_pending(state: str) -> None:
    pending = Verdict(state="Pending", reason="Asking", message="3 of 9 probes were answered")
    gates = replace(GateFacts(), **{state: pending})
    decision = decide_rollout(view(B, A, {A: 1, B: 1}, proven={A}, gates=gates))
    assert (decision.serving, decision.weights, decision.services) == (A, {A: 100}, (B,))
    assert "3 of 9 probes" in decision.message


def test_failure_is_remembered_until_somebody_edits_spec() -> None:
    play = settled(SURGE)
    play.target, play.broken = "b", {"b"}
    failed = play.run()
    assert failed.failed is not None
    play.broken, play.now = set(), play.now + 10_000
    assert play.run().failed == failed.failed, "a restart, or time, is no reason to try again"
    assert set(play.wanted) == {"a"}


@pytest.mark.parametrize("edit", ["terms", "away and back"])
def test_failed_revision_is_tried_again_when_spec_was_edited(edit: str) -> None:
    play = settled(SURGE)
    play.target, play.broken = "b", {"b"}
    play.run()
    play.broken = set()
    if edit == "terms":
        play.policy = replace(play.policy, terms="other")
    else:
        play.target = "a"
        play.run()
        play.target = "b"
    assert play.run().promoted
    assert play.selected == "b"


def test_candidate_is_given_up_when_it_makes_no_progress() -> None:
    play = settled(replace(SURGE, deadline_seconds=600), replicas=2)
    play.target, play.room = "b", 3
    begun = play.now
    decision = play.run()
    assert decision.failed is not None
    assert decision.failed.reason == "ProgressDeadlineExceeded"
    assert "(600)" in decision.failed.message
    assert play.now - begun >= 600


def test_lasting_trouble_is_not_waited_for() -> None:
    trouble = Trouble(reason="OutOfMemory", message="exit code 137", exit_code=137)
    decision = decide_rollout(view(B, A, {A: 1, B: 0}, proven={A}, trouble=trouble))
    assert decision.failed is not None
    assert (decision.failed.reason, decision.failed.exit_code) == ("OutOfMemory", 137)


def test_first_revision_goes_on_trying_when_it_is_late() -> None:
    record = RolloutRecord(progress_at=0)
    decision = decide_rollout(view(A, None, {A: 0}, now=5000.0, records={A: record}))
    assert decision.failed is not None
    assert (decision.failed.reason, set(decision.replicas)) == ("ProgressDeadlineExceeded", {A})
    assert decide_rollout(view(A, None, {A: 1}, now=5000.0, records={A: record})).promoted


def test_first_revision_never_serves_when_its_gate_fails() -> None:
    decision = decide_rollout(view(A, None, {A: 1}, gates=GateFacts(quality=BAD)))
    assert (decision.serving, decision.promoted, decision.weights) == (None, False, {})
    assert decision.failed is not None


# InPlace and Auto ---------------------------------------------------------------------------------
def history(play: Play) -> list[tuple[int, int]]:
    """Ready pods that answer, and pods that hold a place, after each round until it ends."""
    seen = []
    while not play.still:
        play.round()
        seen.append((len(play.answering()), len(play.pods)))
    return seen


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_exchange_keeps_all_but_one_answering_and_never_takes_more_room(replicas: int) -> None:
    play = settled(IN_PLACE, replicas=replicas, room=replicas)
    play.target, play.still = "b", False
    seen = history(play)
    assert min(answering for answering, _ in seen) == replicas - 1
    assert max(pods for _, pods in seen) == replicas
    assert play.selected == "b"


def test_exchange_of_one_replica_says_that_nothing_answers() -> None:
    play = settled(IN_PLACE, room=1)
    play.target = "b"
    messages = [play.round().message for _ in range(3)]
    assert any("nothing answers until it is ready" in message for message in messages)
    play.run()
    assert play.selected == "b"


def test_exchange_of_one_replica_brings_back_the_last_known_good_when_it_fails() -> None:
    play = settled(IN_PLACE, room=1)
    play.target, play.broken = "b", {"b"}
    decision = play.run()
    assert decision.failed is not None
    assert (play.wanted, len(play.answering())) == ({"a": 1}, 1)


def test_auto_exchanges_only_after_a_minute_without_room() -> None:
    play = settled(replace(SURGE, strategy="Auto"), replicas=2, room=2)
    play.target = "b"
    begun = play.now
    play.round()
    assert play.wanted == {"a": 2, "b": 2}
    while play.wanted.get("b") == 2 and play.selected == "a":
        assert play.wanted["a"] == 2
        play.round()
    assert play.now - begun >= 60
    play.run()
    assert play.selected == "b"


def test_exchange_waits_until_answers_are_recorded_that_only_the_old_one_can_give() -> None:
    seen = view(B, A, {A: 1}, proven={A}, policy=IN_PLACE, gates=GateFacts(answers_recorded=False))
    decision = decide_rollout(seen)
    assert decision.replicas == {A: 1, B: 0}
    assert "answers to the probes are recorded" in decision.message
    assert decide_rollout(replace(seen, gates=GateFacts())).replicas == {A: 0, B: 0}


# Canary -------------------------------------------------------------------------------------------
def test_canary_says_the_weight_that_the_number_of_replicas_really_makes() -> None:
    play = settled(CANARY, replicas=3)
    play.target = "b"
    play.round()
    decision = play.round()
    assert (decision.weights, decision.shared, play.wanted) == ({"a": 75, "b": 25}, True, {"a": 3, "b": 1})
    assert "10 % of the requests for 300 s (really 25 %, by the number of replicas)" in decision.message


def test_canary_with_a_route_has_exact_weights_and_no_shared_service() -> None:
    play = settled(ROUTED, replicas=3)
    play.target = "b"
    play.round()
    play.round()
    decision = play.decide()
    assert (decision.weights, decision.shared) == ({"a": 90, "b": 10}, False)
    assert decision.services == ("b",)


def test_canary_step_lasts_its_time_and_then_takes_over() -> None:
    play = settled(CANARY, replicas=1)
    play.target = "b"
    while not play.shared:
        play.round()
    reached = play.now
    while play.selected == "a":
        play.round()
    assert play.now - reached >= 299


@pytest.mark.parametrize(
    ("slo", "ends_in"),
    [
        pytest.param(PASSED, "b", id="passed"),
        pytest.param(
            Verdict(state="Inconclusive", reason="GateInconclusive", message="3 of 100"), "b", id="few"
        ),
        pytest.param(
            Verdict(state="Failed", reason="SloGateFailed", message="80 % of 99 %"), "a", id="worse"
        ),
    ],
)
def test_canary_is_judged_at_the_end_of_its_step(slo: Verdict, ends_in: str) -> None:
    play = settled(CANARY, replicas=2)
    play.target, play.slo = "b", slo
    decision = play.run()
    assert play.selected == ends_in
    assert (decision.failed is None) == (ends_in == "b")


def test_canary_remembers_what_the_gate_saw_when_it_takes_over() -> None:
    play = settled(CANARY)
    play.target = "b"
    play.slo = Verdict(state="Inconclusive", reason="GateInconclusive", message="3 of 100 requests")
    while not (decision := play.round()).newly_proven:
        pass
    assert decision.evidence == "seen; seen; GateInconclusive: 3 of 100 requests"


def test_restarted_slo_count_makes_the_step_longer() -> None:
    play = settled(CANARY)
    play.target = "b"
    while not play.shared:
        play.round()
    seen = play.view()
    late = replace(seen, now=seen.now + 301, gates=replace(seen.gates, slo_since=seen.now + 200))
    assert decide_rollout(late).records.get("b", seen.record("b")).step == 0
    ended = replace(late, now=seen.now + 501)
    assert decide_rollout(ended).records["b"].step == 1


def test_old_revision_keeps_its_pods_while_a_third_one_keeps_the_share_from_a_canary() -> None:
    """Two edits in a row: the first candidate was still ending when the second was ready."""
    play = settled(replace(CANARY, steps=(CanaryStep(weight=54, seconds=30),)), replicas=4)
    play.target = "c"
    while not play.shared:
        play.round()
    play.target = "a"
    while play.shared or "c" not in play.wanted:
        play.round()
    play.target = "b"
    while "c" in play.wanted:
        play.round(seconds=0.1)
        assert len(play.answering()) >= 4
    play.run()
    assert play.selected == "b"


def test_canary_is_at_its_last_step_until_it_takes_over() -> None:
    """Status told of a second step where spec has one."""
    play = settled(CANARY)
    play.target = "b"
    steps = set()
    while not (decision := play.round()).newly_proven:
        steps.add(decision.step)
    assert steps == {1}


# Laws of single decisions -------------------------------------------------------------------------
revisions = st.sampled_from([A, B, C])
fleets = st.builds(
    Fleet,
    wanted=st.integers(0, 4),
    ready=st.integers(0, 4),
    pods=st.integers(0, 5),
    deployed=st.booleans(),
)
records = st.builds(
    RolloutRecord,
    exchange=st.booleans(),
    step=st.integers(0, 3),
    step_at=st.none() | st.integers(0, 2000),
    passed=st.sampled_from(["", "seen"]),
    progress_at=st.none() | st.integers(0, 2000),
    weight=st.integers(0, 100),
    weight_at=st.none() | st.integers(0, 2000),
    failed=st.none()
    | st.builds(
        FailedRollout,
        reason=st.just("X"),
        message=st.text(min_size=1),
        terms=st.sampled_from("tu"),
        at=st.just(1),
    ),
)
views = st.builds(
    RolloutView,
    now=st.floats(0, 3000),
    target=st.none() | revisions,
    selected=st.none() | revisions,
    shared=st.booleans(),
    proven=st.frozensets(revisions),
    stored=st.frozensets(revisions),
    fleets=st.dictionaries(revisions, fleets),
    records=st.dictionaries(revisions, records),
    replicas=st.integers(1, 4),
    policy=st.sampled_from([SURGE, IN_PLACE, CANARY, ROUTED, replace(SURGE, strategy="Auto")]),
    gates=st.builds(GateFacts, quality=st.sampled_from([PASSED, BAD]), answers_recorded=st.booleans()),
    no_room_since=st.none() | st.floats(0, 3000),
)


@given(views)
def test_any_view_has_a_sound_decision(seen: RolloutView) -> None:
    """Whatever hands or crashes made of the cluster."""
    decision: RolloutDecision = decide_rollout(seen)
    assert len(decision.replicas) <= 2
    assert sum(decision.weights.values()) == (100 if decision.serving else 0)
    assert all(weight >= 0 for weight in decision.weights.values())
    assert set(decision.remove) <= seen.deployed
    assert not set(decision.remove) & {decision.serving, *decision.replicas}
    assert all(replicas >= 0 for replicas in decision.replicas.values())
    assert decision.reason and decision.message
    assert decision.again_seconds is None or decision.again_seconds >= 0
    known = seen.deployed | seen.stored | {seen.target}
    assert set(decision.replicas) <= known, "a Deployment without a template"
    if decision.shared:
        assert seen.deployed <= set(decision.weights) | set(decision.remove) | {decision.serving}


def test_third_deployment_goes_while_a_shared_service_still_feeds_two() -> None:
    """Somebody's hand made it, or a crash left it: no share tells of the requests that it would get."""
    there = Fleet(wanted=1, ready=1, pods=1, deployed=True)
    seen = RolloutView(
        now=0.0,
        target=None,
        selected=A,
        shared=True,
        proven=frozenset({A}),
        stored=frozenset({A}),
        fleets={A: replace(there, ready=0), B: there, C: replace(there, ready=0)},
        records={B: RolloutRecord(weight=100)},
        replicas=1,
        policy=SURGE,
        gates=GateFacts(),
    )
    decision = decide_rollout(seen)
    assert (decision.weights, decision.remove) == ({A: 0, B: 100}, (C,))


@given(records)
def test_record_is_read_back_as_it_was_written(record: RolloutRecord) -> None:
    assert parse_record(render_record(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "1",
        "null",
        '{"step": "1"}',
        '{"step": -1}',
        '{"hand": 1}',
        '{"failed": 3}',
        "{" * 9999,
        '{"failed": {"reason": 1, "message": "", "terms": "", "at": 1}}',
    ],
)
def test_record_that_a_hand_has_made_counts_as_none(text: str | None) -> None:
    assert parse_record(text) == RolloutRecord()


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
