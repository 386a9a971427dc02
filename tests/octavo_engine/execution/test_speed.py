"""The measured speed: repeatable, free of pauses, and quickly had."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from octavo_engine.execution import speed
from octavo_engine.execution.speed import MOST_SAMPLES, granted_share, measure_speed, undisturbed_seconds


class Clock:
    """Moves only when work does."""

    def __init__(self, durations: Iterator[float]) -> None:
        self.now = 0.0
        self.durations = durations
        self.num_calls = 0

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.num_calls += 1
        self.now += next(self.durations)


def test_first_run_and_pauses_do_not_count() -> None:
    clock = Clock(iter([5.0, *[0.001, 0.004, 0.001] * 10, 0.06]))
    assert undisturbed_seconds(clock.work, clock) == pytest.approx(0.001)
    assert clock.num_calls == MOST_SAMPLES + 1


def test_slow_work_is_sampled_once() -> None:
    clock = Clock(iter([2.0, 2.0]))
    assert undisturbed_seconds(clock.work, clock) == 2.0


@pytest.mark.parametrize(
    ("quota", "threads", "share"),
    [
        pytest.param(None, 2, 1.0, id="no quota"),
        pytest.param(0.4, 1, 0.4, id="less than a processor"),
        pytest.param(1.5, 2, 0.75, id="one and a half"),
        pytest.param(8.0, 2, 1.0, id="more than is used"),
    ],
)
def test_share_is_what_the_quota_lets_the_threads_run(
    quota: float | None, threads: int, share: float
) -> None:
    assert granted_share(quota, threads) == share


def test_quota_slows_all_three_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "undisturbed_seconds", lambda work: (work(), 0.001)[1])
    head = torch.zeros(64, 32)
    monkeypatch.setattr(speed, "cpu_quota", lambda: None)
    free = measure_speed(head, step=lambda: None)
    monkeypatch.setattr(speed, "cpu_quota", lambda: torch.get_num_threads() / 4)
    quartered = measure_speed(head, step=lambda: None)
    assert free is not None and quartered is not None
    assert free.read_bytes_per_second == 4 * quartered.read_bytes_per_second == 64 * 32 * 4 / 0.001
    assert free.gemm_flop_per_second == 4 * quartered.gemm_flop_per_second == 2 * 128 * 32 * 64 / 0.001
    assert quartered.step_seconds == 4 * free.step_seconds == 0.004


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_real_measurement_is_within_a_second_and_within_reason(dtype: torch.dtype) -> None:
    head = torch.ones(32_000, 512, dtype=dtype)
    started = time.monotonic()
    measured = measure_speed(head, step=lambda: time.sleep(0.002))
    assert time.monotonic() - started < 2  # a second on a machine that has nothing else to do
    assert measured is not None
    assert 1e8 < measured.read_bytes_per_second < 1e13
    assert 1e8 < measured.gemm_flop_per_second < 1e15
    assert 0.002 <= measured.step_seconds < 0.2


def test_device_that_a_table_knows_is_not_measured() -> None:
    assert measure_speed(torch.empty(4, 4, device="meta"), step=lambda: None) is None
