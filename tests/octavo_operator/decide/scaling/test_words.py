"""What is said of a decision: the sentence, status, conditions, Events, and when it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from octavo_operator.api.status import InferenceServiceStatus
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.scaling import PastDecision, ScalingDecision
from octavo_operator.decide.scaling.findings import judge_scaling
from octavo_operator.decide.scaling.publishing import is_news, recommend, still_holds, wait_for_readings
from octavo_operator.decide.scaling.report import autoscaling_status, recall_recent
from octavo_operator.decide.scaling.viewing import held_replicas, is_rolling, state_of
from octavo_operator.decide.target import Refusal, Target
from tests.octavo_operator.builders import (
    URI,
    make_container,
    make_deployment,
    make_pin,
    make_pod,
    make_revision,
    make_spec,
    make_world,
)
from tests.octavo_operator.decide.scaling.engines import Engine, Service, make_policy


def decided(**changes: Any) -> ScalingDecision:
    service = Service(replicas=2)
    service.run(600, 4.0)
    return replace(service.history[-1][1], **changes)


def findings(decision: ScalingDecision, **policy: Any) -> dict[str, tuple[str, str]]:
    made = make_policy(**policy)
    return {one.type: (one.status, one.reason) for one in judge_scaling(decision, made)}


def test_explanation_is_one_sentence_with_its_numbers() -> None:
    assert decided().message == (
        "2 replicas: 4 req/s × 1.01 headroom / 3.4 req/s per replica "
        "(MaxSequences-bound at 57 sequences, TPOT 57 ms)"
    )


def test_explanation_names_what_starts_and_what_could_not_be_read() -> None:
    service = Service(replicas=2, policy=make_policy(minReplicas=2))
    service.run(300, 1.0)
    service.engines[1].reason = "timeout"
    service.engines.append(Engine(name="pod-new", state="starting", created_at=service.now, ready_at=None))
    service.state = replace(service.state, cold_starts=(140.0,))
    said = service.decide().message
    assert "1 starting, ready in ~140 s" in said
    assert "pod-0-1: timeout" in said


def test_status_holds_every_number_of_the_decision() -> None:
    past = PastDecision(at=60.0, replicas=2, reason="LoadAboveTarget", message="2 replicas: why")
    said = autoscaling_status(decided(recent=(past,)), None)
    assert (said.desired_replicas, said.limited_by) == (2, "MaxSequences")
    assert said.demand_milli_rps == 4000
    assert said.capacity_milli_rps is not None and 3300 < said.capacity_milli_rps < 3500
    assert said.recent[0].time == "1970-01-01T00:01:00Z"


def test_status_of_a_fixed_number_has_no_figures() -> None:
    said = autoscaling_status(ScalingDecision(replicas=3, reason="Static", message="so"), None)
    assert (said.desired_replicas, said.capacity_milli_rps, said.limited_by) == (3, None, None)


def test_status_keeps_its_words_until_the_engines_were_read() -> None:
    before = autoscaling_status(decided(), None)
    after = autoscaling_status(wait_for_readings(3, make_policy()), before)
    assert after == before.model_copy(update={"desired_replicas": 3})


@pytest.mark.parametrize(
    ("changes", "kind", "status", "reason"),
    [
        pytest.param({}, "ScalingActive", "True", "Planned", id="as it should be"),
        pytest.param({}, "CapacityLimited", "False", "WithinLimits", id="room above"),
        pytest.param({}, "SLOFeasible", "True", "WithinObjective", id="within reach"),
        pytest.param(
            {"reason": "MetricsMissing"}, "ScalingActive", "False", "MetricsMissing", id="nothing is read"
        ),
        pytest.param({"at_maximum": True}, "CapacityLimited", "True", "AtMaximum", id="at the maximum"),
        pytest.param({"figures": None}, "SLOFeasible", "Unknown", "NotMeasured", id="nothing is known"),
    ],
)
def test_conditions_say(changes: dict[str, Any], kind: str, status: str, reason: str) -> None:
    assert findings(decided(**changes))[kind] == (status, reason)


def test_conditions_say_what_is_out_of_reach() -> None:
    service = Service(policy=make_policy(slo={"tpotMilliseconds": 15}))
    decision = service.run(300, 1.0)
    said = {one.type: one for one in judge_scaling(decision, service.policy)}["SLOFeasible"]
    assert (said.status, said.reason) == ("False", "ObjectiveOutOfReach")
    assert "20 ms" in said.message and "15 ms" in said.message
    assert decision.figures is not None and decision.figures.capacity.limited_by == "MaxSequences"


def test_conditions_of_a_service_without_autoscaling_say_so() -> None:
    decision = ScalingDecision(replicas=3, reason="Static", message="spec.replicas is 3")
    said = {one.type: (one.status, one.reason) for one in judge_scaling(decision, None)}
    assert said["ScalingActive"] == ("False", "Static")
    assert said["SLOFeasible"] == ("Unknown", "NotMeasured")


def test_conditions_stay_as_they_are_until_the_engines_were_read() -> None:
    assert judge_scaling(wait_for_readings(3, make_policy()), make_policy()) == ()


def test_words_of_the_operator_before_stand_while_the_number_is_the_same() -> None:
    said = autoscaling_status(decided(), None)
    assert still_holds(said, decided())
    assert not still_holds(said, decided(replicas=3))
    assert not still_holds(said, decided(reason="MetricsMissing"))
    assert not still_holds(None, decided())


def test_recent_changes_are_recalled_from_status() -> None:
    past = PastDecision(at=60.0, replicas=2, reason="LoadAboveTarget", message="2 replicas: why")
    assert recall_recent(autoscaling_status(decided(recent=(past,)), None)) == (past,)
    assert recall_recent(None) == ()


def test_advice_is_published_beside_the_number_of_spec() -> None:
    advice = recommend(decided(victims=("pod-0",)), 5)
    said = autoscaling_status(advice, None)
    assert (advice.replicas, said.desired_replicas, said.reason) == (5, 2, "Recommended")
    assert advice.victims == ()


def test_events_tell_of_replicas_and_not_of_advice() -> None:
    def status(decision: ScalingDecision) -> InferenceServiceStatus:
        return InferenceServiceStatus(autoscaling=autoscaling_status(decision, None))

    first, more = decided(), decided(replicas=3)
    assert [draft.reason for draft in draft_events(status(first), status(more))] == ["Scaled"]
    assert draft_events(status(first), status(replace(first, message="other words"))) == ()
    assert draft_events(status(recommend(first, 5)), status(recommend(more, 5))) == ()


def test_news_is_a_change_that_cannot_wait_a_minute() -> None:
    first = decided()
    assert first.figures is not None
    figures = replace(first.figures, demand_rate=4.1)
    assert is_news(None, first)
    assert not is_news(first, replace(first, figures=figures, message="4.1 req/s", reason="LoadBelowTarget"))
    assert is_news(first, replace(first, replicas=3))
    assert is_news(first, replace(first, at_maximum=True))
    assert is_news(first, replace(first, reason="MetricsMissing"))
    assert is_news(first, replace(first, figures=replace(figures, unschedulable=1)))


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({}, "starting", id="on its way"),
        pytest.param({"ready": True}, "ready", id="ready"),
        pytest.param({"ready": True, "terminating": True}, "terminating", id="is to end"),
        pytest.param({"unschedulable": "no node"}, "unschedulable", id="no node"),
        pytest.param({"phase": "Failed"}, "terminating", id="evicted"),
        pytest.param({"containers": (make_container(exit_code=1),)}, "failing", id="its engine ended"),
        pytest.param(
            {"containers": (make_container(waiting_reason="ImagePullBackOff"),)}, "failing", id="no image"
        ),
    ],
)
def test_pod_counts_as(changes: dict[str, Any], state: str) -> None:
    assert state_of(make_pod(**changes)) == state


DECIDED = InferenceServiceStatus(autoscaling=autoscaling_status(decided(replicas=4), None))


@pytest.mark.parametrize(
    ("status", "mode", "held"),
    [
        pytest.param(DECIDED, "SLO", 4, id="what was decided, however a rollout divides it"),
        pytest.param(InferenceServiceStatus(), "SLO", 2, id="what its Deployment has before any decision"),
        pytest.param(DECIDED, "Recommend", 7, id="what spec says"),
    ],
)
def test_replicas_that_there_are_to_be(status: InferenceServiceStatus, mode: str, held: int) -> None:
    world = make_world(
        spec=make_spec(replicas=7),
        selected="a",
        status=status,
        deployments={"a": make_deployment("a", wanted=2)},
    )
    assert held_replicas(world, make_policy(mode=mode)) == held


def test_a_spec_that_is_refused_is_no_rollout() -> None:
    one, other = make_revision(), make_revision(make_spec(model={"uri": URI, "revision": "b"}))
    refused = Target(pin=make_pin(), refusal=Refusal(reason="InvalidConfig", message="no"))
    world = make_world(selected=one.hash)
    assert not is_rolling(world, refused)
    assert not is_rolling(world, Target(pin=make_pin(), revision=one))
    assert is_rolling(world, Target(pin=make_pin(), revision=other))
