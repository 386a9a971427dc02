"""Replicas are given up late, few at a time, the idlest first, and not while anything stands against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from octavo_operator.decide.scaling import Unknown
from octavo_operator.decide.scaling.removal import choose_victims
from octavo_operator.decide.scaling.view import ScaledPod
from tests.octavo_operator.decide.scaling.engines import Engine, Service, make_policy, make_reading


def oversized(replicas: int = 6, load: float = 1.0) -> Service:
    """Long enough at this load that only what a test adds keeps the replicas."""
    service = Service(replicas=replicas, policy=make_policy(minReplicas=replicas))
    service.run(1200, load)
    service.policy = make_policy()
    return service


def test_one_is_given_up_in_a_minute_when_there_are_few() -> None:
    service = oversized()
    service.run(200, 1.0)
    falls = [at for at, decision in service.history if decision.reason == "LoadBelowTarget"]
    assert len(falls) >= 3
    assert all(late - early >= 60 for early, late in pairwise(falls))
    counts = [decision.replicas for _, decision in service.history]
    assert all(early - late <= 1 for early, late in pairwise(counts))


def test_a_fifth_is_given_up_in_a_minute_when_there_are_many() -> None:
    service = Service(replicas=20, policy=make_policy(minReplicas=20, maxReplicas=20))
    service.run(1200, 2.0)
    service.policy = make_policy(maxReplicas=20)
    service.run(10, 2.0)
    assert service.replicas == 16


def test_replicas_fall_only_to_the_most_that_was_wanted_in_the_window() -> None:
    service = Service(replicas=8, policy=make_policy(scaleDown={"maxPercent": 100}))
    service.run(1200, 16.0)
    service.run(120, 6.0)
    peak = max(decision.figures.desired for _, decision in service.history[-6:] if decision.figures)
    since = service.now
    service.run(240, 0.1)
    assert service.replicas >= peak, "what was wanted two minutes ago is within the window"
    service.run(600, 0.1)
    assert service.replicas < peak
    assert service.now > since + 300


def set_terminating(service: Service) -> None:
    service.engines.append(Engine(name="pod-gone", state="terminating"))


def set_unschedulable(service: Service) -> None:
    service.engines.append(Engine(name="pod-homeless", state="unschedulable", ready_at=None))


def set_rollout(service: Service) -> None:
    service.view["in_rollout"] = True


@pytest.mark.parametrize(
    ("hinder", "reason"),
    [
        pytest.param(set_rollout, "RolloutInProgress", id="a rollout"),
        pytest.param(set_terminating, "VictimDraining", id="the last victim still drains"),
        pytest.param(set_unschedulable, "Unschedulable", id="pods without a node"),
    ],
)
def test_nothing_is_given_up_while(hinder: Callable[[Service], None], reason: str) -> None:
    service = oversized()
    hinder(service)
    service.follows = False
    decision = service.run(300, 1.0)
    assert (decision.replicas, decision.reason) == (6, reason), decision.message


def test_nothing_is_given_up_while_sequences_are_preempted() -> None:
    service = oversized()
    decision = service.run(120, 1.0, preempted=1.0)
    assert decision.replicas >= 6
    assert "PreemptionBrake" in service.reasons[-12:]


def test_nothing_is_given_up_while_the_objective_is_missed() -> None:
    service = Service(replicas=6, policy=make_policy(minReplicas=6))
    service.run(1200, 2.0)
    service.run(120, 2.0, late=0.5)
    service.policy = make_policy()
    decision = service.run(120, 2.0, late=0.5)
    assert decision.replicas >= 6
    assert "SLOBurn" in service.reasons[-12:]


def test_nothing_is_given_up_when_the_sequences_there_are_would_not_fit() -> None:
    """The arrivals have ended, but what they have left fills the places of those that would stay."""
    service = oversized(replicas=2, load=0.1)

    def crowd(engine: Engine) -> None:
        steps = replace(engine.reading.steps, steps=service.now, seconds=service.now)
        engine.reading = make_reading(
            at=service.now,
            running=40.0,
            kv_tokens_referenced=16_000.0,
            arrived=engine.reading.arrived,
            steps=steps,
        )

    decision = service.run(60, 0.0, each=crowd)
    assert (decision.replicas, decision.reason) == (2, "RemovalTooTight"), decision.message
    assert "80 sequences on each" in decision.message


def make_pod(name: str, running: float | None) -> ScaledPod:
    reading = Unknown(reason="timeout") if running is None else make_reading(running=running)
    return ScaledPod(name=name, state="ready", created_at=0.0, ready_at=0.0, reading=reading)


def test_victims_are_those_with_the_fewest_tokens_left() -> None:
    crowd = [make_pod("a", 9), make_pod("b", 1), make_pod("c", None), make_pod("d", 4)]
    assert choose_victims(crowd, 2, output_tokens=200) == ("b", "d")
    assert choose_victims(crowd, 9, output_tokens=200) == ("b", "d", "a", "c"), "the unknown one comes last"
    assert choose_victims(crowd, -1, output_tokens=200) == ()


def test_victims_are_named_with_the_number_that_falls() -> None:
    service = oversized()
    decision = service.run(10, 1.0)
    assert decision.replicas == 5
    assert len(decision.victims) == 1
    assert service.run(10, 1.0).victims == ()


def test_no_ready_pod_is_a_victim_when_one_that_is_not_ready_goes_first() -> None:
    service = oversized()
    service.engines[0].state, service.engines[0].ready_at = "failing", None
    decision = service.run(10, 1.0)
    assert (decision.replicas, decision.victims) == (5, ())
