"""How many replicas: load, blackouts, bad samples, delays."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling import Unknown, decide_fixed_replicas
from octavo_operator.decide.scaling.in_flight import (
    LoadView,
    Reading,
    Sample,
    ScalingState,
    decide_by_in_flight,
    unknown_reasons,
)
from tests.octavo_operator.builders import make_spec

WINDOW = 300


def policy(low: int = 1, high: int = 8, window: int = WINDOW) -> Autoscaling:
    return Autoscaling.model_validate(
        {
            "minReplicas": low,
            "maxReplicas": high,
            "scaleDown": {"stabilizationWindowSeconds": window},
        }
    )


def busy(running: float, waiting: float = 0.0, most: float = 10.0) -> Sample:
    return Sample(running=running, waiting=waiting, max_sequences=most)


def load(*readings: Reading, **changes: Any) -> LoadView:
    values: dict[str, Any] = {
        "readings": {f"pod-{number}": reading for number, reading in enumerate(readings)},
        "starting": 0,
        "replicas": len(readings),
        "planned_max_sequences": 10,
        "in_rollout": False,
    }
    return LoadView(**{**values, **changes})


LONG_AGO = ScalingState(since=0.0)
LATER = 10_000.0


@pytest.mark.parametrize(
    ("view", "replicas", "reason"),
    [
        pytest.param(load(busy(4)), 1, "LoadOnTarget", id="as it should be"),
        pytest.param(load(busy(8)), 1, "LoadOnTarget", id="at the target, not above"),
        pytest.param(load(busy(10, 5)), 2, "LoadAboveTarget", id="waiting ones count"),
        pytest.param(load(busy(10, 40)), 7, "LoadAboveTarget", id="all at once"),
        pytest.param(load(busy(10, 900)), 8, "LoadAboveTarget", id="up to the bound"),
        pytest.param(load(busy(1), busy(1), busy(1)), 1, "LoadBelowTarget", id="one would do"),
        pytest.param(load(busy(0), busy(0)), 1, "LoadBelowTarget", id="idle"),
        pytest.param(load(busy(1), busy(1), in_rollout=True), 2, "RolloutInProgress", id="not in a rollout"),
        pytest.param(load(busy(10, 40), replicas=7, starting=6), 7, "LoadOnTarget", id="no doubling"),
        pytest.param(load(Unknown(reason="timeout"), replicas=6), 6, "MetricsMissing", id="nobody answers"),
        pytest.param(load(replicas=6), 6, "MetricsMissing", id="nobody is ready"),
        pytest.param(load(busy(math.nan), replicas=3), 3, "MetricsMissing", id="not a number"),
        pytest.param(load(busy(math.inf), replicas=3), 3, "MetricsMissing", id="infinite"),
        pytest.param(load(busy(-math.inf), replicas=3), 3, "MetricsMissing", id="minus infinite"),
        pytest.param(load(busy(-5), replicas=3), 3, "MetricsMissing", id="negative"),
        pytest.param(load(busy(1e308, 1e308), replicas=3), 8, "LoadAboveTarget", id="huge"),
        pytest.param(
            load(busy(0, 40), Unknown(reason="timeout"), replicas=3, starting=1), 5, "LoadAboveTarget",
            id="an unknown pod counts as idle when scaling up",
        ),
        pytest.param(
            load(busy(1), Unknown(reason="timeout"), Unknown(reason="timeout")), 3, "LoadOnTarget",
            id="unknown pods count as loaded when scaling down",
        ),
        pytest.param(
            load(busy(1), busy(1), busy(1), Unknown(reason="timeout")), 2, "LoadBelowTarget",
            id="what is known to be idle may go",
        ),
    ],
)  # fmt: skip
def test_scaling_decides(view: LoadView, replicas: int, reason: str) -> None:
    decision, _ = decide_by_in_flight(now=LATER, policy=policy(), view=view, state=LONG_AGO)
    assert (decision.replicas, decision.reason) == (replicas, reason), decision.message


def test_scaling_keeps_all_through_a_blackout_and_then_waits_a_whole_window() -> None:
    state, replicas, history = ScalingState(since=0.0), 6, []
    rounds: list[tuple[float, tuple[Reading, ...]]] = [(0.0, (busy(8, 40),) * 1)]
    rounds += [(float(t), (Unknown(reason="refused"),)) for t in (30, 60, 900, 930)]
    rounds += [(float(t), (busy(0),)) for t in range(960, 1400, 30)]
    for now, readings in rounds:
        view = load(*readings, replicas=replicas)
        decision, state = decide_by_in_flight(now=now, policy=policy(), view=view, state=state)
        replicas = decision.replicas
        history.append((now, replicas, decision.reason))
    assert {count for now, count, _ in history if now < 930 + WINDOW} == {6}
    assert {reason for now, _, reason in history if 30 <= now <= 930} == {"MetricsMissing"}
    assert history[-1][1] == 1


def test_scaling_falls_only_to_the_most_that_was_wanted_in_the_window() -> None:
    state, replicas = ScalingState(since=-1000.0), 6
    wanted = [(0.0, 40.0), (100.0, 24.0), (200.0, 0.0), (299.0, 0.0)]
    for now, waiting in wanted:
        view = load(busy(0, waiting), replicas=replicas)
        decision, state = decide_by_in_flight(now=now, policy=policy(), view=view, state=state)
        replicas = decision.replicas
    assert replicas == 5, "40 waiting at 0 s wanted five"
    view = load(busy(0), replicas=replicas)
    decision, state = decide_by_in_flight(now=350.0, policy=policy(), view=view, state=state)
    assert decision.replicas == 3, "24 waiting at 100 s wanted three"


def test_scaling_gives_nothing_up_when_it_has_just_begun_to_look() -> None:
    view = load(busy(0), replicas=4)
    decision, _ = decide_by_in_flight(now=100.0, policy=policy(), view=view, state=ScalingState(since=99.0))
    assert (decision.replicas, decision.reason) == (4, "ScaleDownDelayed")


def test_scaling_uses_the_plan_when_an_engine_reports_no_limit() -> None:
    view = load(busy(20, most=0), planned_max_sequences=5)
    decision, _ = decide_by_in_flight(now=LATER, policy=policy(), view=view, state=LONG_AGO)
    assert decision.replicas == 5


def test_scaling_names_the_pods_that_it_could_not_use() -> None:
    said = unknown_reasons({"b": busy(math.nan), "a": Unknown(reason="timeout"), "c": busy(1)})
    assert said == ("a: timeout", "b: reports an impossible number")


numbers = st.floats(allow_nan=True, allow_infinity=True)
any_reading = st.builds(busy, numbers, numbers, numbers) | st.just(Unknown(reason="x"))


@given(
    st.lists(any_reading, max_size=5),
    st.integers(0, 20),
    st.integers(1, 4),
    st.integers(0, 6),
    st.booleans(),
)
def test_scaling_stays_within_bounds_whatever_is_reported(
    readings: list[Reading], replicas: int, low: int, more: int, in_rollout: bool
) -> None:
    view = load(*readings, replicas=replicas, in_rollout=in_rollout)
    decision, state = decide_by_in_flight(
        now=LATER, policy=policy(low, low + more), view=view, state=LONG_AGO
    )
    assert low <= decision.replicas <= low + more
    assert state.since >= 0.0


@given(st.floats(0, 500), st.floats(0, 500), st.integers(1, 8))
def test_scaling_grows_with_the_load(first: float, second: float, replicas: int) -> None:
    low, high = sorted((first, second))

    def wanted(running: float) -> int:
        view = load(busy(running), replicas=replicas)
        return decide_by_in_flight(now=LATER, policy=policy(), view=view, state=LONG_AGO)[0].replicas

    assert wanted(low) <= wanted(high)


@given(st.integers(1, 8), st.floats(0, WINDOW - 1))
def test_scaling_never_falls_within_the_window(replicas: int, age: float) -> None:
    view = load(busy(0), replicas=replicas)
    decision, _ = decide_by_in_flight(now=age, policy=policy(), view=view, state=ScalingState(since=0.0))
    assert decision.replicas == replicas


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
    ],
)
def test_fixed_replicas_follow_spec(sections: dict[str, object], replicas: int, reason: str) -> None:
    decision = decide_fixed_replicas(make_spec(**sections))
    assert decision is not None
    assert (decision.replicas, decision.reason) == (replicas, reason)


def test_fixed_replicas_are_none_under_slo() -> None:
    assert decide_fixed_replicas(make_spec(autoscaling={"mode": "SLO", "maxReplicas": 8})) is None
