"""How many replicas: from load to a number, and what is done where the load is not known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from octavo_operator.decide.scaling import (
    PlannerState,
    Reading,
    ScaledPod,
    ScalingDecision,
    Unknown,
    decide_fixed_replicas,
    decide_replicas,
)
from tests.octavo_operator.builders import make_spec
from tests.octavo_operator.decide.scaling.engines import (
    Engine,
    Service,
    make_policy,
    make_reading,
    make_view,
)

TIMEOUT = Unknown(reason="timeout")


def pod(reading: Reading, name: str = "pod-0", **changes: Any) -> ScaledPod:
    values: dict[str, Any] = {"name": name, "state": "ready", "created_at": 0.0, "ready_at": 1.0}
    return ScaledPod(reading=reading, **{**values, **changes})


def pods(*readings: Reading) -> list[ScaledPod]:
    return [pod(reading, f"pod-{number}") for number, reading in enumerate(readings)]


def decide_once(view: Any, state: PlannerState | None = None, **policy: Any) -> ScalingDecision:
    return decide_replicas(
        now=10_000.0, policy=make_policy(**policy), view=view, state=state or PlannerState()
    )[0]


# Offered work ------------------------------------------------------------------------------------------


def test_size_follows_the_arrivals_when_load_steps_up_and_down() -> None:
    service = Service()
    assert service.run(900, 1.0).replicas == 1
    assert service.run(120, 6.0).replicas >= 3
    grown = service.run(600, 6.0)
    assert grown.figures is not None
    needed = 6.0 * grown.figures.headroom / grown.figures.replica_rate
    assert grown.replicas >= math.ceil(needed)
    assert service.run(3600, 0.5).replicas == 1


def test_size_rises_at_once_when_the_load_is_known() -> None:
    service = Service()
    service.run(900, 1.0)
    started = service.now
    service.run(600, 9.0)
    rises = [at - started for at, decision in service.history if at > started and decision.replicas >= 3]
    assert rises[0] <= 90, "the mean of a minute, and the next round"


def test_headroom_stays_near_one_when_the_load_is_steady() -> None:
    decision = Service().run(7200, 2.0)
    assert decision.figures is not None
    assert 0.95 <= decision.figures.headroom < 1.05


def test_size_is_the_same_when_the_pods_that_were_asked_for_are_still_loading() -> None:
    """A ratio of the pods there are would double every round until the maximum."""
    service = Service()
    service.run(900, 1.0)
    wanted = []
    for _ in range(12):
        service.run(10, 5.0)
        for engine in service.engines[1:]:
            engine.state, engine.ready_at = "starting", None
        wanted.append(service.replicas)
    assert wanted[-1] == max(wanted) <= 3
    for engine in service.engines:
        engine.state, engine.ready_at = "ready", service.now
    assert service.run(120, 5.0).replicas <= 3


def test_a_counter_is_no_load_when_it_stands_still() -> None:
    service = Service(policy=make_policy(maxReplicas=10))
    for engine in service.engines:
        engine.reading = make_reading(arrived=50.0, admitted=50.0, finished=50.0)
    first = service.decide()
    assert first.figures is not None and first.figures.demand_rate == 0.0, "the first scrape tells no rate"
    decision = service.run(300, 0.0)
    assert decision.figures is not None
    assert (decision.figures.demand_rate, decision.replicas) == (0.0, 1)


def test_a_restarted_engine_is_no_load_and_no_relief() -> None:
    service = Service(replicas=3)
    service.run(900, 6.0)
    before = service.replicas
    service.engines[0].reading = make_reading(at=service.now)
    service.run(10, 6.0)
    demand = service.history[-1][1].figures
    assert demand is not None
    assert demand.demand_rate <= 6.1
    assert service.replicas >= before - 1


def test_waiting_requests_raise_the_number_at_once() -> None:
    view = make_view(pods(make_reading(waiting=300.0, running=64.0, kv_tokens_referenced=38_000)))
    decision = decide_once(view)
    assert (decision.replicas, decision.reason) == (6, "LoadAboveTarget"), decision.message


def test_cached_prefixes_count_once_and_idle_blocks_never() -> None:
    view = make_view(pods(make_reading(running=60.0, kv_tokens_referenced=9_000)))
    decision = decide_once(view)
    assert decision.figures is not None
    assert decision.replicas == 1
    assert decision.figures.occupied_replicas == pytest.approx(9_000 / (0.85 * 40_000))


# What is not known ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("readings", "held", "replicas", "reason"),
    [
        pytest.param([TIMEOUT], 6, 6, "MetricsMissing", id="nobody answers"),
        pytest.param([], 6, 6, "MetricsMissing", id="nobody is ready"),
        pytest.param([make_reading(waiting=300.0)], 1, 5, "LoadAboveTarget", id="all at once"),
        pytest.param([make_reading(waiting=9e9)], 1, 8, "LoadAboveTarget", id="up to the bound"),
        pytest.param([make_reading(waiting=1e308)], 1, 8, "LoadAboveTarget", id="huge"),
        pytest.param(
            [make_reading(waiting=300.0), TIMEOUT], 3, 5, "LoadAboveTarget",
            id="an unknown pod counts as idle when the number rises",
        ),
        pytest.param(
            [make_reading(), TIMEOUT, TIMEOUT], 3, 3, "ScaleDownDelayed",
            id="nothing is given up at first sight",
        ),
    ],
)  # fmt: skip
def test_planner_decides_at_first_sight(
    readings: list[Reading], held: int, replicas: int, reason: str
) -> None:
    decision = decide_once(make_view(pods(*readings), replicas=held))
    assert (decision.replicas, decision.reason) == (replicas, reason), decision.message


def test_one_pod_that_hangs_does_not_keep_the_others_from_being_counted() -> None:
    """Forty waiting on the pod that answers are enough to grow, whatever the other two do."""
    crowded = make_reading(waiting=40.0, running=8.0, max_sequences=10.0)
    view = make_view(
        [pod(crowded, "a"), pod(TIMEOUT, "b"), pod(TIMEOUT, "c", state="starting", ready_at=None)]
    )
    assert decide_once(view).replicas > 3


def test_unknown_pods_count_as_loaded_when_the_number_might_fall() -> None:
    service = Service(replicas=4)
    service.run(900, 8.0)
    service.replicas = 4
    for engine in service.engines[:2]:
        engine.reason = "timeout"
    service.run(1200, 0.1)
    assert service.replicas >= 3


def test_nothing_falls_in_a_blackout_and_a_whole_window_must_pass_after_it() -> None:
    service = Service(policy=make_policy(maxReplicas=8), replicas=6)
    service.run(900, 14.0)
    held = service.replicas
    for engine in service.engines:
        engine.reason = "connection refused"
    service.run(930, 0.0)
    assert service.replicas == held
    assert service.reasons[-1] == "MetricsMissing"
    back = service.now
    for engine in service.engines:
        engine.reason = ""
    service.run(1500, 0.0)
    falls = [at for at, decision in service.history if at > back and decision.replicas < held]
    assert falls
    assert falls[0] >= back + 300


def test_blackout_is_told_within_two_rounds() -> None:
    service = Service(replicas=3)
    service.run(300, 3.0)
    for engine in service.engines:
        engine.reason = "connection refused"
    service.run(20, 0.0)
    assert "MetricsMissing" in service.reasons[-2:]
    assert "connection refused" in service.history[-1][1].message


def test_fallback_holds_after_five_minutes_and_never_lowers() -> None:
    for start, fallback, wanted in ((1, 3, 3), (5, 3, 5)):
        policy = make_policy(fallback={"replicas": fallback}, minReplicas=start)
        service = Service(policy=policy, replicas=start)
        service.run(120, 0.1)
        for engine in service.engines:
            engine.reason = "timeout"
        service.run(280, 0.0)
        assert service.replicas == start
        service.run(60, 0.0)
        assert (service.replicas, service.reasons[-1]) == (wanted, "MetricsFallback")


def test_part_of_the_pods_in_the_dark_is_a_blackout_when_fewer_than_seventy_per_cent_answer() -> None:
    service = Service(replicas=4, policy=make_policy(minReplicas=4))
    service.run(300, 1.0)
    for engine in service.engines[:2]:
        engine.reason = "timeout"
    service.run(40, 1.0)
    assert service.state.live.blind_rounds >= 3
    assert service.state.known_since is None


# Restarts ------------------------------------------------------------------------------------------------


def test_a_restarted_operator_decides_as_if_it_had_never_been_away() -> None:
    """The live part of the memory is lost, the durable one is read again."""
    for load in (0.5, 6.0):
        kept, lost = Service(replicas=2), Service(replicas=2)
        for service in (kept, lost):
            service.run(1800, load)
        lost.state = replace(lost.state, live=PlannerState().live)
        for service in (kept, lost):
            service.run(600, load)
        tail = [[decision.replicas for _, decision in one.history[-60:]] for one in (kept, lost)]
        assert tail[0] == tail[1]


def test_what_was_wanted_in_the_last_lost_minute_may_be_all_there_is() -> None:
    """Killed before it could write: the memory is a minute old, and the load may have risen since."""
    service = Service(replicas=4, policy=make_policy(minReplicas=4))
    service.run(1200, 1.0)
    service.policy = make_policy()
    service.state = replace(service.state, live=PlannerState().live)
    service.now += 60.0
    for engine in service.engines:
        engine.reading = replace(engine.reading, at=service.now)
    back = service.now
    service.run(600, 1.0)
    falls = [at for at, decision in service.history if at > back and decision.replicas < 4]
    assert falls[0] >= back + 300


def test_the_window_begins_anew_when_the_operator_was_away_for_long() -> None:
    service = Service(replicas=4)
    service.run(900, 9.0)
    service.state = replace(service.state, live=PlannerState().live)
    service.now += 3600
    for engine in service.engines:
        engine.reading = replace(engine.reading, at=service.now)
    back, held = service.now, service.replicas
    service.run(900, 0.1)
    falls = [at for at, decision in service.history if at > back and decision.replicas < held]
    assert falls[0] >= back + 300


# Who is asked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "replicas", "reason"),
    [
        pytest.param({"replicas": 3}, 3, "Static", id="absent"),
        pytest.param(
            {"replicas": 3, "autoscaling": {"mode": "External", "maxReplicas": 8}}, 3, "External", id="ours"
        ),
        pytest.param(
            {"replicas": 9, "autoscaling": {"mode": "External", "maxReplicas": 8}}, 8, "External", id="held"
        ),
        pytest.param(
            {"replicas": 3, "autoscaling": {"mode": "Recommend", "maxReplicas": 8}},
            3,
            "Recommend",
            id="advice",
        ),
    ],
)
def test_fixed_replicas_follow_spec(sections: dict[str, object], replicas: int, reason: str) -> None:
    decision = decide_fixed_replicas(make_spec(**sections))
    assert decision is not None
    assert (decision.replicas, decision.reason) == (replicas, reason)


def test_fixed_replicas_are_none_under_slo() -> None:
    assert decide_fixed_replicas(make_spec(autoscaling={"mode": "SLO", "maxReplicas": 8})) is None


def test_advice_that_nobody_follows_is_remembered_once() -> None:
    service = Service(follows=False)
    service.run(900, 8.0)
    assert service.history[-1][1].replicas > 1
    assert len(service.state.recent) <= 3
    assert service.state.changed_at is None, "the replicas did not change, so learning goes on"


def test_an_engine_that_is_read_for_the_first_time_is_asked_nothing_but_its_gauges() -> None:
    engine = Engine(name="pod-0", reading=make_reading(arrived=1e6, preemptions=1e5))
    decision = decide_once(make_view([engine.pod()]))
    assert decision.replicas == 1
