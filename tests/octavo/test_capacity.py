"""What a replica can take: figures that a reader can check, what binds, and that nothing is out of order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.accelerators import ACCELERATORS
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.capacity import (
    Capacity,
    Objective,
    ReplicaLimits,
    Traffic,
    occupancy,
    replica_capacity,
    tpot_seconds,
    ttft_seconds,
    work_seconds,
)
from octavo.errors import InvalidSpec
from octavo.prompt_sizes import exponential_sizes, prompt_moments
from octavo.step_model import StepCosts, prior_of_architecture

COSTS = StepCosts(
    base_seconds=0.02, prefill_token_seconds=2e-4, context_token_seconds=5e-7, sequence_seconds=1e-4
)
LIMITS = ReplicaLimits(kv_tokens=40_000, max_sequences=256)
SLO = Objective(ttft_seconds=2.0, tpot_seconds=0.08, quantile=0.95)


def chat(prompt: float = 500, output: float = 200, kv: float = 600) -> Traffic:
    return Traffic(
        prompts=prompt_moments(exponential_sizes(prompt), step_tokens=512, quantile=0.95),
        output_tokens=output,
        context_tokens=kv,
        kv_tokens=kv,
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
        prefill_tokens=rate * tpot * traffic.prompts.tokens,
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
        pytest.param(chat(prompt=3000), LIMITS, replace(SLO, ttft_seconds=3.5), "TTFT", id="long prompts"),
    ],
)
def test_capacity_names_what_binds(
    traffic: Traffic, limits: ReplicaLimits, objective: Objective, limited_by: str
) -> None:
    found = replica_capacity(COSTS, traffic, limits, objective)
    assert found.limited_by == limited_by, found
    assert found.rate == min(found.tpot_rate, found.kv_rate, found.ttft_rate)
    assert not found.infeasible


def test_capacity_keeps_its_objective_at_the_rate_it_names() -> None:
    found = replica_capacity(COSTS, chat(), LIMITS, SLO)
    assert found.tpot_seconds <= SLO.tpot_seconds * 1.000001
    assert found.ttft_seconds <= SLO.ttft_seconds * 1.000001
    assert occupancy(COSTS, chat(), found.rate) <= found.sequences * 1.000001


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


@given(capacities(), factors)
def test_capacity_grows_with_memory_and_with_what_is_allowed(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective], factor: float
) -> None:
    costs, traffic, limits, objective = case
    base = capacity_of(case)
    more = max(1.0, factor)
    assert replica_capacity(
        costs, traffic, replace(limits, kv_tokens=limits.kv_tokens * more), objective
    ).rate >= base.rate * (1 - 1e-9)
    looser = replace(
        objective, ttft_seconds=objective.ttft_seconds * more, tpot_seconds=objective.tpot_seconds * more
    )
    if not base.infeasible:
        assert replica_capacity(costs, traffic, limits, looser).rate >= base.rate * (1 - 1e-9)


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
        assert found.rate <= capacity_of(case).rate * (1 + 1e-9)


@given(capacities(), st.floats(0, 1), st.floats(0, 1))
def test_latencies_grow_with_the_rate(
    case: tuple[StepCosts, Traffic, ReplicaLimits, Objective], first: float, second: float
) -> None:
    costs, traffic, _, objective = case
    most = 1 / work_seconds(costs, traffic)
    low, high = sorted((first * most, second * most))
    assert tpot_seconds(costs, traffic, low) <= tpot_seconds(costs, traffic, high)
    assert ttft_seconds(costs, traffic, objective, low) <= ttft_seconds(costs, traffic, objective, high) * (
        1 + 1e-9
    )
