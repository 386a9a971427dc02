"""A size that is wrong already: one replica more at a time, and a little memory less to plan with."""

from __future__ import annotations

import pytest

from octavo_operator.decide.scaling.pressure import Pressure, is_preempting, remember_pressure
from tests.octavo_operator.decide.scaling.engines import Service, make_policy


def test_preemptions_add_one_replica_and_lower_the_share_of_memory() -> None:
    service = Service()
    service.run(900, 1.0)
    decision = service.run(20, 1.0, preempted=2.0)
    assert decision.figures is not None
    assert (service.replicas, service.history[-2][1].reason) == (2, "PreemptionBrake")
    assert decision.figures.memory_share == pytest.approx(0.85 * 0.9, rel=0.01)


def test_preemptions_add_no_more_while_one_is_on_its_way() -> None:
    service = Service()
    service.run(900, 1.0)
    for _ in range(30):
        service.run(10, 1.0, preempted=2.0)
        for engine in service.engines[1:]:
            engine.state, engine.ready_at = "starting", None
    assert service.replicas == 2


def test_preemptions_add_one_at_a_time_when_new_ones_start_at_once() -> None:
    service = Service()
    service.run(900, 1.0)
    service.run(60, 1.0, preempted=2.0)
    assert service.replicas == 2
    service.run(60, 1.0, preempted=2.0)
    assert service.replicas == 3


def test_the_share_of_memory_recovers_by_a_hundredth_in_a_minute() -> None:
    service = Service()
    service.run(900, 1.0)
    service.run(10, 1.0, preempted=2.0)
    cut = service.state.memory_share
    service.run(600, 1.0)
    assert service.state.memory_share == pytest.approx(cut * 1.01**10, rel=0.02)
    service.run(3600, 1.0)
    assert service.state.memory_share == pytest.approx(0.85)


def test_a_preemption_in_hundreds_of_admissions_is_none_of_its_business() -> None:
    service = Service(replicas=2, policy=make_policy(minReplicas=2))
    service.run(900, 4.0)
    service.run(10, 4.0, preempted=0.5)
    assert service.reasons[-1] != "PreemptionBrake", "one in 240 admissions of the last minute"


def test_a_missed_objective_adds_one_replica() -> None:
    service = Service()
    service.run(2400, 1.0)
    service.run(900, 1.0, late=0.5)
    assert service.replicas >= 2
    assert "SLOBurn" in service.reasons


def test_what_was_late_for_another_objective_is_forgotten() -> None:
    service = Service(policy=make_policy(slo={"ttftMilliseconds": 100}))
    missed = service.run(300, 1.0).figures
    service.policy = make_policy(slo={"ttftMilliseconds": 2000})
    kept = service.run(120, 1.0).figures
    assert missed is not None and missed.burn is not None and missed.burn > 1
    assert kept is not None and kept.burn == 0.0


def test_a_missed_objective_of_few_requests_says_nothing() -> None:
    service = Service()
    service.run(2400, 0.05)
    service.run(600, 0.05, late=1.0)
    assert service.replicas == 1
    assert "SLOBurn" not in service.reasons


def test_an_objective_that_is_kept_says_nothing() -> None:
    service = Service()
    service.run(3600, 1.0, late=0.02)
    assert service.replicas == 1


def test_brakes_stop_at_the_maximum() -> None:
    service = Service(policy=make_policy(maxReplicas=2), replicas=2)
    service.run(900, 3.0)
    service.run(300, 3.0, preempted=5.0)
    assert service.replicas == 2


def test_recomputed_tokens_are_preemptions_too() -> None:
    past = (Pressure(at=100.0, admitted=1000, preempted=1, prefilled=10_000, recomputed=600),)
    assert is_preempting(past, now=120.0)
    assert not is_preempting(past, now=200.0)


def test_half_an_hour_is_kept_in_half_minutes() -> None:
    past: tuple[Pressure, ...] = ()
    for number in range(1000):
        past = remember_pressure(past, Pressure(at=10.0 * number, first_tokens=1.0))
    assert len(past) < 75
    assert 178 <= sum(one.first_tokens for one in past) <= 182
