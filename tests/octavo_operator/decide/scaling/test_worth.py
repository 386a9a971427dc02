"""What one more replica has to save: steady while the traffic shifts, and never a licence to miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.replica_load import Objective
from octavo_operator.decide.scaling.demand import DemandBucket
from octavo_operator.decide.scaling.observing import objective_of
from octavo_operator.decide.scaling.sizing import MOST_SPENT, WORTH_BUCKETS, settled_worth
from octavo_operator.decide.scaling.state import PlannerState
from tests.octavo_operator.decide.scaling.engines import Service, make_view


def served(service: Service, *, worth: float | None, buckets: int) -> PlannerState:
    """As after so many buckets of demand."""
    kept = tuple(DemandBucket(start=5 * index, means=(1.0,), sized=(1.0,)) for index in range(buckets))
    return replace(service.state, worth=worth, demand=replace(service.state.demand, buckets=kept))


@pytest.fixture(scope="module")
def service() -> Service:
    served = Service(replicas=2)
    served.run(600, 4.0)
    return served


def settled(service: Service, *, worth: float | None, buckets: int) -> float:
    view = make_view(one.pod() for one in service.engines)
    state = served(service, worth=worth, buckets=buckets)
    found = settled_worth(state, view=view, objective=objective_of(service.policy))
    assert found is not None
    return found


def test_worth_of_the_first_bucket_is_that_of_its_traffic(service: Service) -> None:
    usual = settled(service, worth=None, buckets=1)
    assert settled(service, worth=100.0 * usual, buckets=1) == pytest.approx(usual)


def test_worth_moves_by_a_twelfth_of_the_way_once_an_hour_is_known(service: Service) -> None:
    usual = settled(service, worth=None, buckets=1)
    for buckets in (WORTH_BUCKETS, 288):
        moved = settled(service, worth=16.0 * usual, buckets=buckets)
        assert moved == pytest.approx(usual * 16.0 ** (11 / 12))


def test_heavy_traffic_is_not_sized_to_miss_more_than_the_budget_and_a_little(service: Service) -> None:
    """Whatever a replica had to save in lighter hours."""
    spendthrift = Service(replicas=2, state=replace(service.state, worth=1e6), engines=service.engines)
    spendthrift.now = service.now
    figures = spendthrift.run(10, 4.0).figures
    assert figures is not None
    curve, objective = figures.capacity.curve, Objective(ttft_seconds=2.0, tpot_seconds=0.08, quantile=0.95)
    sized = figures.replica_rate / figures.headroom
    loads = spendthrift.state.demand.growths
    missed = sum(load * curve.miss(sized * load) for load in loads) / sum(loads)
    assert missed <= 1.02 * MOST_SPENT * objective.budget
