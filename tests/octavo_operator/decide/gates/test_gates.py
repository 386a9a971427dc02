"""What each gate says, from what was asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import ServiceLevelObjective, SloGate
from octavo_operator.decide.gates.asking import candidate_of, door_of
from octavo_operator.decide.gates.attainment import Attained, judge_attainment, look_again, open_window
from octavo_operator.decide.gates.load import Loaded, Silent, judge_load
from octavo_operator.decide.gates.probes import (
    MAX_RECORDED_CHARACTERS,
    Probe,
    judge_quality,
    parse_probes,
    recall_answers,
    record_answers,
)
from octavo_operator.decide.rollout.observing import hash_terms
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.rollout_record import FailedRollout, RolloutRecord
from tests.octavo_operator.builders import (
    COMMIT,
    make_revision,
    make_spec,
    make_stored,
    make_target,
    make_world,
)

DIGEST = "sha256:" + "d" * 64
REVISION = replace(make_revision(), manifest_digest=DIGEST)
GOOD = Loaded(commit=COMMIT, manifest_digest=DIGEST)


@pytest.mark.parametrize(
    ("answers", "state", "text"),
    [
        pytest.param({"a": GOOD, "b": GOOD}, "Passed", "2 pods loaded commit 0123456789ab", id="all"),
        pytest.param({"a": replace(GOOD, manifest_digest="d" * 64)}, "Passed", "1 pod", id="bare digest"),
        pytest.param(
            {"a": GOOD, "b": replace(GOOD, commit="f" * 40)},
            "Failed",
            "Pod b loaded commit ffff",
            id="commit",
        ),
        pytest.param({"a": replace(GOOD, commit="")}, "Failed", "(none)", id="no commit"),
        pytest.param(
            {"a": replace(GOOD, manifest_digest="sha256:ee")}, "Failed", "sha256:ee", id="other files"
        ),
        pytest.param(
            {"a": replace(GOOD, manifest_digest="")}, "Failed", "nobody vouches for", id="no record"
        ),
        pytest.param({"a": GOOD, "b": Silent(why="timeout")}, "Pending", "timeout", id="silent"),
        pytest.param(
            {"a": Silent(why="x"), "b": replace(GOOD, commit="f" * 40)},
            "Failed",
            "Pod b",
            id="wrong beats silent",
        ),
    ],
)
def test_load_gate_judges(answers: Any, state: str, text: str) -> None:
    verdict = judge_load(REVISION, answers)
    assert verdict.state == state
    assert text in verdict.message


def test_load_gate_compares_no_files_when_the_revision_knows_none() -> None:
    assert judge_load(make_revision(), {"a": replace(GOOD, manifest_digest="sha256:ee")}).state == "Passed"


# SLO ----------------------------------------------------------------------------------------------
SLO = ServiceLevelObjective()


def attained(in_time: int, total: int) -> Attained:
    return Attained(first_tokens=total, first_in_time=in_time, paced=total, paced_in_time=in_time)


@pytest.mark.parametrize(
    ("candidate", "good", "state"),
    [
        pytest.param(attained(99, 99), attained(900, 900), "Inconclusive", id="one request too few"),
        pytest.param(attained(100, 100), attained(900, 900), "Passed", id="just enough"),
        pytest.param(attained(100, 100), attained(0, 0), "Inconclusive", id="nothing to compare with"),
        pytest.param(attained(490, 500), attained(4950, 5000), "Passed", id="1 point less"),
        pytest.param(
            attained(96, 100), attained(99, 100), "Passed", id="3 points less, but perhaps by chance"
        ),
        pytest.param(attained(480, 500), attained(4950, 5000), "Failed", id="3 points less, for certain"),
        pytest.param(attained(9_700, 10_000), attained(9_900, 10_000), "Passed", id="exactly the limit"),
        pytest.param(
            attained(9_699, 10_000), attained(9_900, 10_000), "Failed", id="a little over the limit"
        ),
        pytest.param(attained(500, 500), attained(100, 5000), "Passed", id="much better"),
    ],
)
def test_slo_gate_judges(candidate: Attained, good: Attained, state: str) -> None:
    assert judge_attainment(candidate, good, SloGate(), SLO).state == state


@pytest.mark.parametrize("aspect", ["first_in_time", "paced_in_time"])
def test_slo_gate_fails_when_one_of_both_objectives_is_missed(aspect: str) -> None:
    slow = replace(attained(500, 500), **{aspect: 300})
    verdict = judge_attainment(slow, attained(4990, 5000), SloGate(), SLO)
    assert verdict.state == "Failed"
    assert "60.0 % of 500 against 99.8 % of 5000" in verdict.message


def test_window_counts_what_came_since_it_began() -> None:
    window = open_window(5.0, {"a": ("old", attained(90, 100)), "b": ("new", attained(10, 10))})
    window = look_again(window, {"a": ("old", attained(130, 150)), "b": ("new", attained(12, 14))})
    assert window.since == 5.0
    assert window.of("old") == attained(40, 50)
    assert window.of("new") == attained(2, 4)


def test_window_counts_pods_that_came_and_went_and_engines_that_started_anew() -> None:
    window = open_window(5.0, {"a": ("old", attained(90, 100)), "b": ("old", attained(50, 50))})
    window = look_again(window, {"a": ("old", attained(95, 110)), "c": ("old", attained(7, 8))})
    window = look_again(window, {"a": ("old", attained(3, 3))})
    assert window.of("old") == attained(3 + 0 + 7, 3 + 0 + 8)
    assert window.of("new") == Attained()


# Quality ------------------------------------------------------------------------------------------
CAPITAL = Probe(prompt="Capital of France?", max_tokens=8, expect="Paris")
STORY = Probe(prompt="Once upon a time", max_tokens=200)


@pytest.mark.parametrize(
    ("probes", "answers", "reference", "state", "text"),
    [
        pytest.param((CAPITAL,), ("It is\nParis.",), None, "Passed", "1 of 1", id="expected"),
        pytest.param((CAPITAL,), ("Lyon",), None, "Failed", "expected 'Paris', got 'Lyon'", id="unexpected"),
        pytest.param((STORY,), ("there",), ("there",), "Passed", "1 of 1", id="as before"),
        pytest.param(
            (STORY,), ("here",), ("there",), "Failed", "answered 'there', got 'here'", id="not as before"
        ),
        pytest.param((STORY,), ("x",), None, "Passed", "GateInconclusive", id="nothing to compare with"),
        pytest.param((CAPITAL, STORY), ("Paris", "x"), None, "Passed", "1 had no earlier", id="half"),
        pytest.param(
            (CAPITAL,) * 49 + (STORY,), ("Paris",) * 49 + ("x",), ("",) * 50, "Passed", "49 of 50", id="98 %"
        ),
        pytest.param(
            (CAPITAL,) * 48 + (STORY,), ("Paris",) * 48 + ("x",), ("",) * 49, "Failed", "48 of 49", id="97 %"
        ),
    ],
)
def test_quality_gate_judges(probes: Any, answers: Any, reference: Any, state: str, text: str) -> None:
    verdict = judge_quality(probes, answers, reference, min_match_percent=98)
    assert verdict.state == state
    assert text in verdict.message


def test_recorded_answers_are_compared_only_with_the_same_probes() -> None:
    probes = (CAPITAL, STORY)
    recorded = record_answers(probes, ("Paris", "there" * 1000))
    recalled = recall_answers(probes, recorded)
    assert recalled == ("", ("there" * 1000)[:MAX_RECORDED_CHARACTERS])
    assert judge_quality(probes, ("Paris", "there" * 1000), recalled, min_match_percent=100).state == "Passed"
    assert recall_answers((STORY,), recorded) is None
    for by_hand in ("", "[]", "{}", "x", '{"probes": 1, "answers": 2}'):
        assert recall_answers(probes, by_hand) is None


def test_probes_are_read() -> None:
    text = json.dumps(
        [
            {"prompt": "Once upon a time", "maxTokens": 200},
            {"prompt": "Capital of France?", "expect": "Paris"},
        ]
    )
    story, capital = parse_probes("probes", {"probes.json": text})
    assert (story, capital.expect) == (STORY, "Paris")


def test_only_what_is_compared_is_asked_for() -> None:
    assert (CAPITAL.asked_tokens, STORY.asked_tokens) == (8, 32)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param({}, "must have the key probes.json", id="no key"),
        pytest.param({"probes.yaml": "[]"}, "has ['probes.yaml']", id="another key"),
        pytest.param({"probes.json": "nonsense"}, "Invalid JSON", id="no JSON"),
        pytest.param({"probes.json": "[]"}, "at least 1 item", id="none"),
        pytest.param({"probes.json": json.dumps([{"prompt": "a"}] * 65)}, "at most 64", id="too many"),
        pytest.param({"probes.json": '[{"prompt": ""}]'}, "probes.json.0.prompt", id="empty prompt"),
        pytest.param(
            {"probes.json": '[{"prompt": "a", "maxTokens": 999}]'}, "probes.json.0.maxTokens", id="tokens"
        ),
        pytest.param(
            {"probes.json": '[{"prompt": "a", "expected": "b"}]'}, "probes.json.0.expected", id="typing error"
        ),
        pytest.param(
            {"probes.json": '[{"prompt": "a", "expect": "("}]'}, "probes.json.0.expect", id="no expression"
        ),
        pytest.param(
            {"probes.json": '[{"prompt": "a", "expect": "a(?=b)"}]'}, "look-around", id="look-ahead"
        ),
    ],
)
def test_malformed_probes_are_refused_by_name(data: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSpec, match="ConfigMap probes: ") as refused:
        parse_probes("probes", data)
    assert text in str(refused.value)


def test_malformed_probes_are_told_in_words_of_their_writer() -> None:
    """They named a tuple, a validator and a part of the expression that nobody had written."""
    look = [{"prompt": "a", "expect": "(?=x)"}]
    with pytest.raises(InvalidSpec) as refused:
        parse_probes("probes", {"probes.json": json.dumps(look)})
    assert str(refused.value) == (
        "ConfigMap probes: probes.json.0.expect: '(?=x)' is no regular expression of the linear kind: "
        "look-around, including look-ahead and look-behind, is not supported"
    )
    with pytest.raises(InvalidSpec, match=r"probes.json: The list should have at least 1 item, not 0$"):
        parse_probes("probes", {"probes.json": "[]"})


def test_expression_that_would_take_for_ever_does_not() -> None:
    probe = Probe(prompt="a", expect="(a+)+$")
    assert judge_quality((probe,), ("a" * 5000 + "b",), None, min_match_percent=100).state == "Failed"


# Whom to ask --------------------------------------------------------------------------------------
def test_engine_is_asked_by_the_words_of_its_own_template() -> None:
    spec = make_spec(
        model={"uri": "hf://organization/model", "servedName": "gpt"},
        engine={"args": ["--api-key=first,second"]},
    )
    door = door_of(make_revision(spec).template, 8000)
    assert (door.model, door.api_key) == ("gpt", "first")
    by_variable = make_spec(engine={"env": [{"name": "OCTAVO_API_KEY", "value": "secret"}]})
    assert door_of(make_revision(by_variable).template, 8000).api_key == "secret"


def test_engine_whose_key_is_in_a_secret_is_not_asked_with_an_empty_one() -> None:
    """An edit from a Secret to a quality gate waited for answers that the old engine refused with 401."""
    door = door_of(make_revision(make_spec(engine={"apiKeySecretRef": {"name": "keys"}})).template, 8000)
    assert door.locked
    assert not door_of(make_revision().template, 8000).locked


def test_nobody_is_asked_about_what_serves_was_given_up_or_is_suspended() -> None:
    target, revision = make_target(), make_revision()
    failed = FailedRollout(reason="X", message="x", terms=hash_terms(make_spec()), at=1)
    given_up = make_stored(revision, proven=False, learned=Learned(record=RolloutRecord(failed=failed)))
    assert candidate_of(make_world(), target) == target.revision
    assert candidate_of(make_world(spec=make_spec(suspend=True)), target) is None
    assert candidate_of(make_world(revisions={revision.hash: given_up}), target) is None
    serving = make_world(selected=revision.hash, revisions={revision.hash: make_stored(revision)})
    assert candidate_of(serving, target) is None
