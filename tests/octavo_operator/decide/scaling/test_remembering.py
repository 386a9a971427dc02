"""What is remembered between rounds: traffic, demand, cold starts, and all of it as text."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from octavo_operator.decide.scaling import PlannerState
from octavo_operator.decide.scaling.cold_start import cold_start_seconds
from octavo_operator.decide.scaling.demand import MAX_BUCKETS, DemandMemory, remember_demand
from octavo_operator.decide.scaling.memory_text import format_memory, parse_memory
from octavo_operator.decide.scaling.progress import progress_between
from octavo_operator.decide.scaling.readings import NOTHING_COUNTED
from octavo_operator.decide.scaling.state import LiveMemory
from octavo_operator.decide.scaling.traffic import TrafficMemory, describe_traffic, remember_traffic
from tests.octavo_operator.decide.scaling.engines import (
    OUTPUT,
    PROMPT,
    Engine,
    Service,
    make_policy,
    make_reading,
)

# Traffic -------------------------------------------------------------------------------------------------


def seen(engine: Engine, rounds: int, rate: float) -> TrafficMemory:
    memory = TrafficMemory()
    for _ in range(rounds):
        before = engine.reading
        engine.serve(10.0, rate)
        progress = progress_between(before, engine.reading)
        assert progress is not None
        memory = remember_traffic(memory, [progress], [engine.reading], seconds=10.0)
    return memory


def test_traffic_is_what_the_engines_served() -> None:
    memory = seen(Engine(name="pod-0"), 120, 2.0)
    traffic = describe_traffic(memory, max_model_len=4096, step_tokens=512)
    assert traffic.prompts.mean == pytest.approx(PROMPT, rel=0.01)
    assert traffic.output_tokens == pytest.approx(OUTPUT, rel=0.01)
    assert traffic.context_tokens == pytest.approx(600, rel=0.01)
    assert traffic.kv_tokens == pytest.approx(600, rel=0.01)
    assert traffic.outputs.tokens == (pytest.approx((192 + 256) / 2 + 0.5),), "the bucket that 200 is in"


def test_traffic_is_known_by_its_means_when_an_older_engine_does_not_tell_its_outputs() -> None:
    engine = Engine(name="pod-0")
    engine.reading = replace(engine.reading, outputs=NOTHING_COUNTED)
    after = replace(engine.reading, at=10.0, admitted=50.0, finished=50.0, generated_tokens=5_000.0)
    progress = progress_between(engine.reading, after)
    assert progress is not None
    memory = remember_traffic(TrafficMemory(), [progress], [after], seconds=10.0)
    traffic = describe_traffic(memory, max_model_len=4096, step_tokens=512)
    assert traffic.outputs.mean == pytest.approx(traffic.output_tokens)


def test_spread_over_replicas_is_learned_from_replicas_that_hold_different_amounts() -> None:
    memory = TrafficMemory()
    pair = [make_reading(running=10.0, kv_tokens_referenced=held) for held in (5_000.0, 7_000.0)]
    for _ in range(500):
        memory = remember_traffic(memory, [], pair, seconds=0.0)
    traffic = describe_traffic(memory, max_model_len=4096, step_tokens=512)
    assert traffic.kv_spread == pytest.approx(2_000_000 / 6_000, rel=0.05)


def test_traffic_is_the_usual_before_any_was_seen() -> None:
    traffic = describe_traffic(TrafficMemory(), max_model_len=512, step_tokens=512)
    assert (traffic.prompts.mean, traffic.output_tokens) == (pytest.approx(128), 128)


def test_output_is_not_overrated_while_the_first_sequences_run() -> None:
    """Ten of 200 tokens, half done, none finished: dividing by those that ended would say anything."""
    engine = Engine(name="pod-0")
    after = make_reading(at=10.0, running=10.0, arrived=10.0, admitted=10.0, generated_tokens=1000.0)
    progress = progress_between(engine.reading, after)
    assert progress is not None
    memory = remember_traffic(TrafficMemory(), [progress], [after], seconds=10.0)
    traffic = describe_traffic(memory, max_model_len=4096, step_tokens=512)
    assert traffic.output_tokens == pytest.approx(200)


@pytest.mark.parametrize("counter", ["arrived", "generated_tokens", "preemptions"])
def test_progress_is_unknown_when_a_counter_went_back(counter: str) -> None:
    before = replace(make_reading(at=0.0), **{counter: 5.0})
    assert progress_between(before, make_reading(at=10.0)) is None


def test_progress_is_unknown_when_the_answer_is_no_newer() -> None:
    assert progress_between(make_reading(at=10.0), make_reading(at=10.0)) is None


# Demand ---------------------------------------------------------------------------------------------------


def remembered(
    works: list[float], *, sized: list[float] | None = None, horizon: float = 180.0
) -> DemandMemory:
    memory = DemandMemory()
    for minute, work in enumerate(works):
        for second in (0, 10, 50):
            now, high = 60.0 * minute + second, work if sized is None else sized[minute]
            memory = remember_demand(memory, now=now, work=work, sized=high, horizon=horizon)
    return memory


def test_growth_is_the_usual_one_until_the_load_is_known() -> None:
    """What twenty minutes show weighs as much as what is taken for granted."""
    little, more, all_day = (remembered([3.0] * minutes).growths for minutes in (4, 25, 1440))
    assert sorted(set(little)) == pytest.approx(DemandMemory().growths)
    assert 0.4 < sum(growth == 1.0 for growth in more) / len(more) < 0.7
    assert set(all_day) == {1.0}


def test_growth_of_an_unknown_load_is_larger_where_replicas_start_slowly() -> None:
    fast, slow = (remembered([3.0] * 4, horizon=horizon).growths for horizon in (60.0, 360.0))
    assert fast[-1] < slow[-1]


def test_growth_is_what_a_ramp_rises_by_while_a_replica_starts() -> None:
    ramp = [2.0 + 0.1 * minute for minute in range(100)]
    slow, fast = remembered(ramp, horizon=300.0).growths, remembered(ramp, horizon=60.0).growths
    assert 1.04 < slow[1] < slow[-1] < 1.35
    assert fast[-1] < slow[-1]


def test_load_that_falls_is_less_than_what_was_sized_for() -> None:
    """Replicas of the window's highest load are still there."""
    found = remembered([8.0, 4.0] * 60, sized=[8.0] * 120, horizon=60.0).growths
    assert (found[0], found[-1]) == (0.5, 1.0)


def test_growth_stays_within_its_bounds_when_the_load_is_wild() -> None:
    draw = random.Random(3)
    found = remembered([draw.choice((0.5, 20.0)) for _ in range(200)]).growths
    assert found[-1] == 1.5
    assert found == tuple(sorted(found))


def test_growth_does_not_bridge_a_gap() -> None:
    memory = remembered([1.0] * 60)
    for minute in range(12):
        now = 90_000.0 + 60 * minute
        memory = remember_demand(memory, now=now, work=50.0, sized=50.0, horizon=180.0)
    assert max(memory.growths) == pytest.approx(max(DemandMemory().growths)), "and not 50"


def test_demand_of_a_day_is_kept_and_no_more() -> None:
    memory = remembered([1.0] * 3000)
    assert len(memory.buckets) == MAX_BUCKETS == 288
    assert sum(len(bucket.means) for bucket in memory.buckets) == 1440


# Cold starts -----------------------------------------------------------------------------------------------


def test_cold_start_is_measured_from_creation_to_ready() -> None:
    service = Service(policy=make_policy(minReplicas=2), replicas=2)
    service.engines[0].created_at, service.engines[0].ready_at = 0.0, 40.0
    service.engines[1].created_at, service.engines[1].ready_at = 0.0, 70.0
    service.run(60, 0.1)
    assert service.state.cold_starts == (40.0, 70.0)
    assert cold_start_seconds(service.state.cold_starts) == 70.0


def test_cold_start_is_not_measured_of_a_pod_that_was_ready_before() -> None:
    service = Service()
    service.run(60, 0.1)
    before = service.state.cold_starts
    engine = service.engines[0]
    engine.state, engine.ready_at = "starting", None
    service.decide()
    engine.state, engine.ready_at = "ready", 5000.0
    service.decide()
    assert service.state.cold_starts == before


def test_cold_starts_are_not_measured_anew_when_the_operator_was_restarted() -> None:
    service = Service()
    service.run(60, 0.1)
    service.state = replace(service.state, live=LiveMemory())
    service.engines[0].ready_at = 3000.0
    service.run(60, 0.1)
    assert service.state.cold_starts == (0.0,)


# As text ---------------------------------------------------------------------------------------------------


def grown() -> PlannerState:
    service = Service()
    service.run(1800, 4.0)
    return service.state


def test_memory_is_read_again_as_it_was_written() -> None:
    state = grown()
    text = format_memory(state)
    assert parse_memory(text, now=2000.0) == replace(state, live=LiveMemory())
    assert len(text) < 10_000


STATE = json.loads(format_memory(grown()))


def text_with(**changes: object) -> str:
    return json.dumps({**STATE, "state": {**STATE["state"], **changes}})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param("null", id="null"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(json.dumps({**STATE, "version": 3}), id="of a later version"),
        pytest.param(json.dumps({"version": 2}), id="no state"),
        pytest.param(text_with(wanted="many"), id="a word for a list"),
        pytest.param(text_with(wanted=[[1.0, 2.5]]), id="half a replica"),
        pytest.param(text_with(memory_share="0.5"), id="a number as text"),
        pytest.param(text_with(memory_share=-1.0), id="negative"),
        pytest.param(text_with(known_since=1e300), id="huge"),
        pytest.param(text_with(seen_at=float("nan")), id="not a number"),
        pytest.param(text_with(seen_at=9e9), id="of another clock"),
        pytest.param(text_with(learned={"kind": {}}), id="costs without numbers"),
        pytest.param(
            text_with(learned={"kind": {**next(iter(STATE["state"]["learned"].values())), "prior": {
                "base_seconds": 0.0, "prefill_token_seconds": 1.0, "context_token_seconds": 1.0,
                "sequence_seconds": 1.0}}}), id="a cost of nothing",
        ),
        pytest.param(format_memory(PlannerState()) + " " * 600_000, id="far too long"),
    ],
)  # fmt: skip
def test_memory_that_cannot_be_true_is_none(text: str) -> None:
    assert parse_memory(text, now=2000.0) is None
