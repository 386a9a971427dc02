"""Loads: as bursty as asked for, as long as the fits say, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import InvalidSpec
from octavo_operator.simulation.arrivals import arrivals, unit_gaps
from octavo_operator.simulation.traffic import CODE, CONVERSATION, draw_requests
from octavo_operator.simulation.workloads import SHAPES, draw_workload


@pytest.mark.parametrize(
    ("variation", "tolerance"),
    [pytest.param(1.1, 0.03, id="gamma"), pytest.param(13.0, 1.5, id="hyperexponential")],
)
def test_gaps_have_mean_one_and_the_variation_asked_for(variation: float, tolerance: float) -> None:
    gaps = unit_gaps(np.random.default_rng(1), variation=variation, count=400_000)
    assert gaps.mean() == pytest.approx(1.0, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, abs=tolerance)


def test_arrivals_follow_the_rate() -> None:
    rate = np.concatenate([np.full(1000, 2.0), np.full(1000, 20.0)])
    times = arrivals(np.random.default_rng(0), rate, variation=1.0)
    assert (np.diff(times) >= 0).all()
    assert (times < 1000).sum() == pytest.approx(2000, rel=0.1)
    assert (times >= 1000).sum() == pytest.approx(20_000, rel=0.05)


@pytest.mark.parametrize(
    ("traffic", "prompt", "output"),
    [pytest.param(CONVERSATION, 757, 151, id="conv"), pytest.param(CODE, 1097, 16, id="code")],
)
def test_lengths_have_the_medians_of_the_fits(traffic, prompt: int, output: int) -> None:
    found = draw_requests(np.random.default_rng(2), traffic, np.arange(50_000.0))
    assert np.median(found.prompt) == pytest.approx(prompt, rel=0.05)
    assert np.median(found.output) == pytest.approx(output, rel=0.07)
    assert (found.shared + found.reusable < found.prompt).all()
    assert (found.shared % 16 == 0).all()
    assert (found.reusable % 16 == 0).all()


@pytest.mark.parametrize("name", SHAPES)
def test_shape_is_in_order_within_its_time_and_repeatable(name: str) -> None:
    one, again, other = draw_workload(name, 0), draw_workload(name, 0), draw_workload(name, 1)
    arrival = one.requests.arrival
    assert (np.diff(arrival) >= 0).all()
    assert 0 <= arrival[0] <= arrival[-1] < one.seconds
    assert np.array_equal(one.requests.prompt, again.requests.prompt)
    assert not np.array_equal(arrival[:100], other.requests.arrival[:100])
    assert int((one.requests.prompt + one.requests.output).max()) <= 8192


def test_unknown_shape_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidSpec, match=r"shape: 'chat'.*conv, code"):
        draw_workload("chat", 0)


def test_whole_shift_is_chat_then_code_then_chat_again() -> None:
    load = draw_workload("shift", 0)
    tenth = load.seconds / 10
    medians = [
        float(np.median(load.requests.output[(load.requests.arrival // tenth).astype(int) == part]))
        for part in (0, 5, 9)
    ]
    assert medians[0] > 5 * medians[1] < medians[2]
