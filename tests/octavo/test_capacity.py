"""What a replica can take: figures that a reader can check, what binds, and that nothing is out of order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.accelerators import ACCELERATORS
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.capacity import Capacity, replica_capacity, ttft_seconds
from octavo.errors import InvalidSpec
from octavo.misses import first_tokens, misses_at, share_above, slow_share
from octavo.replica_load import (
    Objective,
    ReplicaLimits,
    Traffic,
    occupancy,
    tpot_seconds,
    work_seconds,
)
from octavo.step_model import StepCosts, prior_of_architecture
from octavo.token_sizes import exponential_sizes, token_sizes

COSTS = StepCosts(
    base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
)
LIMITS = ReplicaLimits(kv_tokens=40_000, max_sequences=256)
NEAR = 0.03
"""Rates lie on straight lines between those that were computed."""
SLO = Objective(ttft_seconds=2.0, tpot_seconds=0.08, quantile=0.95)


def chat(prompt: float = 500, output: float = 200, kv: float = 600) -> Traffic:
    return Traffic(
        prompts=token_sizes(exponential_sizes(prompt)),
        outputs=token_sizes(exponential_sizes(output)),
        output_tokens=output,
        context_tokens=kv,
        kv_tokens=kv,
        kv_spread=2 * kv,
        step_tokens=512,
    )


def test_occupancy_follows_littles_law_when_the_load_is_known() -> None:
    rate, traffic = 2.0, chat()
    step = tpot_seconds(COSTS, traffic, rate)
    assert step == pytest.approx(0.02 / (1 - 2 * work_seconds(COSTS, traffic)))
    assert occupancy(COSTS, traffic, rate) == pytest.approx(rate * 200 * step)


def test_a_step_at_its_occupancy_takes_what_the_rate_says() -> None:
    """The closed form and the step model agree: the step of B sequences and the prompts that come in it."""
    rate, traffic = 3.0, chat()
    running, tpot = occupancy(COSTS, traffic, rate), tpot_seconds(COSTS, traffic, rate)
    step = COSTS.step_seconds(
        prefill_tokens=rate * tpot * traffic.prompts.mean,
        context_tokens=running * traffic.context_tokens,
        sequences=running,
    )
    assert step == pytest.approx(tpot)


@pytest.mark.parametrize(
    ("traffic", "limits", "objective", "limited_by"),
    [
        pytest.param(chat(), replace(LIMITS, kv_tokens=8_000), SLO, "KVCache", id="little memory"),
        pytest.param(chat(), replace(LIMITS, max_sequences=8), SLO, "MaxSequences", id="few places"),
        pytest.param(chat(kv=300), LIMITS, replace(SLO, tpot_seconds=0.03), "TPOT", id="tight TPOT"),
        pytest.param(chat(prompt=1500), LIMITS, replace(SLO, ttft_seconds=1.2), "TTFT", id="long prompts"),
    ],
)
def test_capacity_names_what_binds(
    traffic: Traffic, limits: ReplicaLimits, objective: Objective, limited_by: str
) -> None:
    found = replica_capacity(COSTS, traffic, limits, objective)
    assert found.limited_by == limited_by, found
    assert found.rate <= min(found.tpot_rate, found.kv_rate, found.ttft_rate) * (1 + NEAR)
    assert not found.infeasible


def test_capacity_keeps_its_objective_at_the_rate_it_names() -> None:
    found = replica_capacity(COSTS, chat(), LIMITS, SLO)
    assert 0.03 < misses_at(COSTS, chat(), LIMITS, SLO, found.rate).any < 0.055
    assert found.tpot_seconds <= SLO.tpot_seconds
    assert found.ttft_seconds <= SLO.ttft_seconds
    assert occupancy(COSTS, chat(), found.rate) <= found.sequences


def test_a_long_prompt_of_a_neighbour_spoils_a_short_answer_more_often_than_a_long_one() -> None:
    """Code: sixteen tokens of output. The mean time per token is the same for both, and says nothing."""
    prompts = token_sizes([(200, 9), (6000, 1)])
    short = replace(chat(), prompts=prompts, outputs=token_sizes([(16, 1)]))
    long = replace(short, outputs=token_sizes([(400, 1)]))
    found = [slow_share(COSTS, one, SLO.tpot_seconds, 0.4) for one in (short, long)]
    assert found[0] > 0.03 > 10 * found[1]


def test_no_more_are_slow_than_long_prompts_arrive_when_one_is_enough() -> None:
    """Two seconds of prefill fall into sixteen tokens' 1.2 s or do not: a Poisson process, by hand."""
    traffic = replace(chat(), prompts=token_sizes([(1, 999), (10_000, 1)]), outputs=token_sizes([(16, 1)]))
    rate = 1.0
    window = 15 * SLO.tpot_seconds + tpot_seconds(COSTS, traffic, rate)
    found = slow_share(COSTS, traffic, SLO.tpot_seconds, rate)
    assert found == pytest.approx(1 - math.exp(-rate * window / 1000), rel=0.05)


def test_first_tokens_are_late_by_the_long_prompts_themselves_when_nobody_else_is_there() -> None:
    traffic = replace(chat(), prompts=token_sizes([(100, 97), (30_000, 3)]))
    assert first_tokens(COSTS, traffic, 0.0).late_share(2.0) == pytest.approx(0.03)
    assert ttft_seconds(COSTS, traffic, SLO, 0.0) < 0.2, "95 of 100 are short"


def test_a_cache_that_is_seldom_full_blocks_few() -> None:
    """Twenty sequences in the mean, of a hundred that fit, and of twenty-five."""
    assert share_above(60_000, mean=12_000, variance=12_000 * 1200) < 1e-9
    assert 0.1 < share_above(15_000, mean=12_000, variance=12_000 * 1200) < 0.3


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        pytest.param(replace(SLO, tpot_seconds=0.019), "20 ms", id="a step is too slow"),
        pytest.param(replace(SLO, ttft_seconds=0.1), "on an idle replica", id="a prompt is too long"),
    ],
)
def test_objective_out_of_reach_is_said_with_numbers_and_the_size_follows_memory(
    objective: Objective, words: str
) -> None:
    found = replica_capacity(COSTS, chat(), LIMITS, objective)
    assert words in found.infeasible
    assert found.rate == found.kv_rate > 0
    assert found.limited_by == "KVCache"


@pytest.mark.parametrize("field", ["ttft_seconds", "tpot_seconds", "quantile"])
def test_objective_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(InvalidSpec, match=field):
        replace(SLO, **{field: 0.0})


def test_cost_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="base_seconds"):
        replace(COSTS, base_seconds=math.nan)


def test_prior_of_an_8b_model_on_an_a10g_is_of_the_order_that_was_measured() -> None:
    """16 GB at 600 GB/s: between 27 ms (the data sheet) and 45 ms a step."""
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    architecture = parse_architecture(config)
    assert isinstance(architecture, ModelArchitecture)
    prior = prior_of_architecture(architecture, ACCELERATORS["A10G-24GB"])
    assert 0.027 < prior.base_seconds < 0.045
    halved = prior_of_architecture(architecture, ACCELERATORS["A10G-24GB"], tensor_parallel=2)
    assert halved.base_seconds < 0.6 * prior.base_seconds


factors = st.floats(0.2, 5.0)
lengths = st.floats(10, 4000)


@st.composite
def capacities(draw: st.DrawFn) -> tuple[StepCosts, Traffic, ReplicaLimits, Objective]:
    costs = StepCosts(
        base_seconds=0.02 * draw(factors),
        prefill_token_seconds=2e-4 * draw(factors),
        context_token_seconds=5e-7 * draw(factors),
        sequence_seconds=1e-4 * draw(factors),
    )
    traffic = chat(draw(lengths), draw(lengths), draw(lengths))
    limits = ReplicaLimits(kv_tokens=draw(st.floats(1e3, 1e6)), max_sequences=draw(st.integers(1, 512)))
    objective = Objective(
        ttft_seconds=draw(st.floats(0.1, 20)),
        tpot_seconds=draw(st.floats(0.01, 1)),
        quantile=draw(st.sampled_from((0.5, 0.9, 0.95, 0.99))),
    )
    return costs, traffic, limits, objective


def capacity_of(case: tuple[StepCosts, Traffic, ReplicaLimits, Objective]) -> Capacity:
    return replica_capacity(*case)


@given(capacities())
def test_capacity_is_positive_finite_and_below_what_can_be_computed(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective],
) -> None:
    found = capacity_of(case)
    assert 0 < found.rate < 1 / work_seconds(case[0], case[1])
    assert found.tpot_seconds < math.inf


def mean_answer_has_room_for_a_mean_prompt(costs: StepCosts, traffic: Traffic, objective: Objective) -> bool:
    """Elsewhere `slow_share` says too much, the more the looser the objective for TPOT."""
    spare = (traffic.output_tokens - 1) * (objective.tpot_seconds - costs.base_seconds)
    return spare >= costs.prefill_token_seconds * traffic.prompts.mean


@given(capacities(), factors)
def test_capacity_grows_with_memory_and_with_what_is_allowed(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective], factor: float
) -> None:
    costs, traffic, limits, objective = case
    base = capacity_of(case)
    more = max(1.0, factor)
    assert replica_capacity(
        costs, traffic, replace(limits, kv_tokens=limits.kv_tokens * more), objective
    ).rate >= base.rate * (1 - NEAR)
    patient = replace(objective, ttft_seconds=objective.ttft_seconds * more)
    looser = replace(patient, tpot_seconds=objective.tpot_seconds * more)
    if not base.infeasible:
        assert replica_capacity(costs, traffic, limits, patient).rate >= base.rate * (1 - NEAR)
    if not base.infeasible and mean_answer_has_room_for_a_mean_prompt(costs, traffic, objective):
        assert replica_capacity(costs, traffic, limits, looser).rate >= base.rate * (1 - NEAR)


@given(capacities(), factors)
def test_capacity_falls_when_everything_costs_more(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective], factor: float
) -> None:
    costs, traffic, limits, objective = case
    more = max(1.0, factor)
    dearer = StepCosts(
        base_seconds=costs.base_seconds * more,
        prefill_token_seconds=costs.prefill_token_seconds * more,
        context_token_seconds=costs.context_token_seconds * more,
        sequence_seconds=costs.sequence_seconds * more,
    )
    found = replica_capacity(dearer, traffic, limits, objective)
    if not found.infeasible:
        assert found.rate <= capacity_of(case).rate * (1 + NEAR)


@given(capacities(), st.floats(0, 1), st.floats(0, 1))
def test_misses_grow_with_the_rate(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective], first: float, second: float
) -> None:
    costs, traffic, limits, objective = case
    most = 1 / work_seconds(costs, traffic)
    low, high = sorted((first * most, second * most))
    assert tpot_seconds(costs, traffic, low) <= tpot_seconds(costs, traffic, high)
    fewer = misses_at(costs, traffic, limits, objective, low)
    more = misses_at(costs, traffic, limits, objective, high)
    for cause in ("slow", "late", "blocked", "crowded"):
        assert 0 <= getattr(fewer, cause) <= getattr(more, cause) + NEAR
        assert getattr(more, cause) <= 1
    assert fewer.any <= more.any + NEAR


def test_fewer_requests_miss_for_want_of_room_the_longer_they_may_wait() -> None:
    """Sequences end meanwhile, and half of what they free is for those that waited before."""
    small = ReplicaLimits(kv_tokens=12_000, max_sequences=256)
    hurried, patient, idle = (
        misses_at(COSTS, chat(), small, replace(SLO, ttft_seconds=seconds), 2.0).blocked
        for seconds in (0.05, 2.0, 20.0)
    )
    assert hurried > 1.5 * patient > idle


def test_patience_makes_no_room_where_more_runs_than_fits() -> None:
    """However late the first token may come: the queue would grow without end."""
    small = ReplicaLimits(kv_tokens=12_000, max_sequences=256)
    patient = replace(SLO, ttft_seconds=600.0, tpot_seconds=1.0)
    found = replica_capacity(COSTS, chat(), small, patient)
    assert occupancy(COSTS, chat(), found.rate) * 600 < 12_000
    assert found.limited_by == "KVCache"
