"""Laws of the planner: whatever is reported and whatever was remembered."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo_operator.decide.scaling import (
    PlannerState,
    PodState,
    Reading,
    ScaledPod,
    Unknown,
    decide_replicas,
)
from octavo_operator.decide.scaling.memory_text import format_memory, parse_memory
from tests.octavo_operator.decide.scaling.engines import (
    LATENCY_BOUNDS,
    Service,
    make_policy,
    make_reading,
    make_view,
    spread,
)

numbers = st.floats(0, 1e12)
counts = st.floats(0, 1e9)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    if draw(st.booleans()):
        return Unknown(reason="x")
    return make_reading(
        at=draw(st.floats(0, 1e5)),
        running=draw(numbers),
        waiting=draw(numbers),
        kv_tokens_referenced=draw(numbers),
        kv_tokens_total=draw(numbers),
        max_sequences=draw(st.floats(0, 4096)),
        max_step_tokens=draw(st.floats(0, 1e5)),
        arrived=draw(counts),
        admitted=draw(counts),
        finished=draw(counts),
        prompt_tokens=draw(numbers),
        cached_tokens=draw(numbers),
        generated_tokens=draw(numbers),
        recomputed_tokens=draw(counts),
        preemptions=draw(counts),
        ttft=spread(LATENCY_BOUNDS, 0.5, draw(counts)),
        tpot=spread(LATENCY_BOUNDS, 5.0, draw(counts)),
    )


states: st.SearchStrategy[PodState] = st.sampled_from(
    ["ready", "ready", "ready", "starting", "failing", "unschedulable", "terminating"]
)


@st.composite
def pods(draw: st.DrawFn, index: int) -> ScaledPod:
    state = draw(states)
    return ScaledPod(
        name=f"pod-{index}",
        state=state,
        created_at=draw(st.floats(0, 1e5)),
        ready_at=draw(st.floats(0, 1e5)) if state == "ready" else None,
        reading=draw(readings()),
    )


@st.composite
def rounds(draw: st.DrawFn) -> list[list[ScaledPod]]:
    """The same names again and again, whatever becomes of them."""
    size = draw(st.integers(0, 4))
    return [[draw(pods(index)) for index in range(size)] for _ in range(draw(st.integers(1, 6)))]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(rounds(), st.integers(0, 20), st.integers(1, 4), st.integers(0, 6), st.booleans(), st.floats(0.1, 600))
def test_replicas_stay_within_bounds_whatever_is_reported(
    seen: list[list[ScaledPod]], replicas: int, low: int, more: int, in_rollout: bool, interval: float
) -> None:
    policy, state = make_policy(minReplicas=low, maxReplicas=low + more), PlannerState()
    for number, crowd in enumerate(seen):
        view = make_view(crowd, replicas=replicas, in_rollout=in_rollout)
        decision, state = decide_replicas(now=1e5 + number * interval, policy=policy, view=view, state=state)
        assert low <= decision.replicas <= low + more
        assert decision.message
        if decision.figures is not None:
            assert 0 < decision.figures.replica_rate < math.inf
            assert 0.8 <= decision.figures.headroom <= 2.5
        replicas = decision.replicas
    assert parse_memory(format_memory(state), now=1e6) is not None, "what was remembered can be read again"


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 20), st.floats(0, 20))
def test_replicas_grow_with_the_load(first: float, second: float) -> None:
    """A service that has served one request a second, and then this many."""
    low, high = sorted((first, second))

    def wanted(rate: float) -> int:
        service = Service(policy=make_policy(maxReplicas=50), follows=False)
        service.run(300, 1.0)
        service.state = replace(service.state, learned={})
        return service.run(60, rate).replicas

    assert wanted(low) <= wanted(high)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 8), st.floats(0, 290), st.floats(0.0, 2.0))
def test_nothing_falls_within_the_window(replicas: int, age: float, rate: float) -> None:
    """However little the load is, for as long as it was not looked at for a whole window."""
    service = Service(replicas=replicas)
    decision = service.run(max(10.0, age), rate)
    assert decision.replicas >= replicas


@settings(deadline=None, max_examples=20)
@given(st.floats(0.0, 6.0), st.integers(30, 2000), st.sampled_from(["timeout", "503", "nan"]))
def test_nothing_falls_in_a_blackout(rate: float, seconds: int, reason: str) -> None:
    service = Service(replicas=5, policy=make_policy(minReplicas=5))
    service.run(600, rate)
    service.policy = make_policy()
    held = service.replicas
    for engine in service.engines:
        engine.reason = reason
    decision = service.run(float(seconds), rate)
    assert decision.replicas >= held


@settings(deadline=None, max_examples=15)
@given(st.lists(st.floats(0, 12), min_size=4, max_size=12))
def test_steps_down_are_small_and_rare(loads: list[float]) -> None:
    """Ten minutes of each load: never more than a fifth, or one, given up within a minute."""
    service = Service(policy=make_policy(maxReplicas=12))
    for load in loads:
        service.run(600, load)
    decided = [(at, decision.replicas) for at, decision in service.history]
    for (start, before), (_, after) in pairwise(decided):
        assert before - after <= max(1, before // 5)
        later = [count for at, count in decided if start < at <= start + 50 and count < after]
        if after < before:
            assert not later
