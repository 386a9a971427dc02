"""The scale benchmark's own judgement: which figures break a promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scale.__main__ import broken_promises
from benchmarks.scale.measure import Figures

GOOD = Figures(
    services=1000,
    foreign_pods=5000,
    all_ready_seconds=100.0,
    operator_peak_mib=250.0,
    steady_calls_per_minute=3.0,
    edit_median_seconds=0.3,
    edit_max_seconds=1.0,
    restart_calls={"list": 12},
    restart_writes=0,
)


def test_no_promise_is_broken_when_all_figures_are_within_the_limits() -> None:
    assert broken_promises(GOOD) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operator_peak_mib", 300.1),
        ("edit_median_seconds", 2.1),
        ("steady_calls_per_minute", 1000.0),
        ("restart_writes", 1),
    ],
)
def test_broken_promise_is_named_when_a_figure_is_beyond_its_limit(field: str, value: float) -> None:
    assert [words.split()[0] for words in broken_promises(replace(GOOD, **{field: value}))] == [field]
