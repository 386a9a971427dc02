"""Answers that do not move, and what has to be made up for when they move again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo_operator.decide.scaling import EngineReading
from octavo_operator.decide.scaling.stuck import STUCK, without_stuck
from tests.octavo_operator.decide.scaling.engines import Engine, Service, make_policy, make_reading, make_view


def moved(before: EngineReading, *, steps: float, seconds: float = 10.0) -> EngineReading:
    sums = replace(before.steps, steps=before.steps.steps + steps)
    return replace(before, at=before.at + seconds, steps=sums)


@pytest.mark.parametrize(
    ("running", "waiting", "steps", "seconds", "is_stuck"),
    [
        pytest.param(5.0, 0.0, 0.0, 10.0, True, id="runs, but makes no step"),
        pytest.param(0.0, 3.0, 0.0, 10.0, True, id="requests wait, and none is started"),
        pytest.param(5.0, 0.0, 1.0, 10.0, False, id="one slow step"),
        pytest.param(0.0, 0.0, 0.0, 10.0, False, id="idle"),
        pytest.param(5.0, 0.0, 0.0, 0.0, False, id="the same scrape again"),
        pytest.param(5.0, 0.0, -9.0, 10.0, False, id="started anew"),
    ],
)
def test_reading_is_unknown_when_work_is_there_and_no_step_is_made(
    running: float, waiting: float, steps: float, seconds: float, is_stuck: bool
) -> None:
    before = make_reading(running=running, waiting=waiting)
    engine = Engine(name="pod-0", reading=moved(before, steps=steps, seconds=seconds))
    view = without_stuck(make_view([engine.pod()]), {"pod-0": before})
    assert (view.pods[0].reading == STUCK) is is_stuck


def test_nothing_is_given_up_while_most_engines_repeat_themselves() -> None:
    """Their counters stand still, as if nobody asked any more."""
    service = Service(replicas=6, policy=make_policy())
    service.run(1800, 15.0)
    held = service.run(60, 15.0).replicas
    kept = {engine.name: engine.reading for engine in service.engines}

    def frozen(engine: Engine) -> None:
        engine.reading = replace(kept[engine.name], at=service.now)

    decision = service.run(1200, 15.0, each=frozen)
    assert decision.replicas >= held
    assert decision.reason == "MetricsMissing"
    assert "made no step since its last answer" in decision.message


def test_rate_after_a_gap_is_that_of_the_last_minute() -> None:
    """Counters that come back tell of the whole gap: ten minutes of requests are not those of one."""
    service = Service(replicas=4, policy=make_policy())
    before = service.run(1800, 6.0)

    def silent(engine: Engine) -> None:
        engine.serve(10.0, 6.0 / len(service.engines))
        engine.reason = "timeout"

    service.run(600, 0.0, each=silent)
    for engine in service.engines:
        engine.reason = ""
    after = [service.run(10, 6.0) for _ in range(12)]
    assert before.figures is not None
    rates = [decision.figures.demand_rate for decision in after if decision.figures is not None]
    assert max(rates) <= 1.1 * before.figures.demand_rate, rates
