"""How fast this processor is: the planner's first guess at step times, where no table knows the device.

Short pieces of work are timed and the lower quartile is taken, so that neighbours, busy as all are when
pods start, and the pauses of a CPU quota do not count; what a quota withholds in the long run is then
taken off as a share. The model's own head serves as the data, its largest matrix as a rule: measuring
takes no memory, and a model that stays in the processor's cache is measured as it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import linear

from octavo_engine.engine_facts import MeasuredSpeed
from octavo_engine.memory import cpu_quota

MOST_SAMPLES: Final = 31
MOST_SECONDS: Final = 0.25
"""For one of the three quantities; a single sample may take longer."""
READ_BYTES: Final = 4 << 20
"""Of one piece that is read: less than a millisecond, as other programs are let in after some."""
GEMM_ROWS: Final = 128
GEMM_FLOP: Final = 1 << 27
"""Of one product."""


def measure_speed(head: Tensor, *, step: Callable[[], object]) -> MeasuredSpeed | None:
    """Measure with a weight [V, E] and a step of one token; None on a device that a table knows."""
    if head.device.type != "cpu":
        return None
    share = granted_share(cpu_quota(), torch.get_num_threads())
    with torch.inference_mode():
        return MeasuredSpeed(
            read_bytes_per_second=share * _read_rate(head),
            gemm_flop_per_second=share * _gemm_rate(head),
            step_seconds=undisturbed_seconds(step) / share,
        )


def granted_share(quota: float | None, num_threads: int) -> float:
    """Of the time of all threads, what the quota lets them run.

    >>> granted_share(0.4, 1), granted_share(None, 8), granted_share(1.5, 2)
    (0.4, 1.0, 0.75)
    """
    return 1.0 if quota is None else min(1.0, quota / num_threads)


def _read_rate(head: Tensor) -> float:
    num_rows = min(head.shape[0], max(1, READ_BYTES // (head.shape[1] * head.itemsize)))
    starts = cycle(range(0, head.shape[0] - num_rows + 1, num_rows))
    one_row = head.new_ones(1, head.shape[1])

    def read_piece() -> None:
        start = next(starts)
        linear(one_row, head[start : start + num_rows])

    return num_rows * head.shape[1] * head.itemsize / undisturbed_seconds(read_piece)


def _gemm_rate(head: Tensor) -> float:
    flop_per_output = 2 * GEMM_ROWS * head.shape[1]
    weight = head[: max(1, GEMM_FLOP // flop_per_output)]
    rows = head.new_ones(GEMM_ROWS, head.shape[1])
    return flop_per_output * weight.shape[0] / undisturbed_seconds(lambda: linear(rows, weight))


def undisturbed_seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Of one piece of work when nothing comes between, after one that does not count."""
    work()
    samples: list[float] = []
    started = clock()
    while not samples or (len(samples) < MOST_SAMPLES and clock() - started < MOST_SECONDS):
        before = clock()
        work()
        samples.append(clock() - before)
    return sorted(samples)[len(samples) // 4]
