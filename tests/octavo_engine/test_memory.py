"""Limits of memory and processors as cgroups state them, and what they leave for the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo_engine.errors import InsufficientMemory
from octavo_engine.memory import (
    MIB,
    PeakMeter,
    cpu_quota,
    kv_budget_bytes,
    memory_limit_bytes,
    num_threads,
    require_room_for_blocks,
    require_room_for_weights,
    resident_bytes,
)
from tests.octavo_engine.oracle import load_engine, save_tiny_model

MEMINFO = "MemTotal: 4096 kB\nMemAvailable:    2000 kB\n"
STATUS = "VmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 800 kB\nRssShmem:\t 0 kB\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    """A root directory with the kernel's files."""
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/status": STATUS, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


V2 = {"proc/self/cgroup": "0::/pod/container"}
V1 = {"proc/self/cgroup": "5:memory:/pod\n4:cpu,cpuacct:/pod\n0::/ignored"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({**V2, "sys/fs/cgroup/pod/container/memory.max": "5000"}, 5000, id="v2"),
        pytest.param({**V2, "sys/fs/cgroup/memory.max": "6000"}, 6000, id="v2 seen from inside"),
        pytest.param(
            {
                **V2,
                "sys/fs/cgroup/pod/container/memory.max": "max",
                "sys/fs/cgroup/pod/memory.max": "7000",
                "sys/fs/cgroup/memory.max": "9000",
            },
            7000,
            id="v2 limit of a level above",
        ),
        pytest.param({**V1, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "8000"}, 8000, id="v1"),
        pytest.param({**V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "8100"}, 8100, id="v1 from inside"),
        pytest.param(
            {**V1, "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "9223372036854771712"},
            int(0.9 * 2100 * 1024),
            id="v1 without limit",
        ),
        pytest.param({}, int(0.9 * 2100 * 1024), id="no cgroup"),
    ],
)
def test_memory_limit_is_the_smallest_that_holds(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    assert memory_limit_bytes(machine(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({**V2, "sys/fs/cgroup/pod/container/cpu.max": "50000 100000"}, 0.5, id="v2"),
        pytest.param({**V2, "sys/fs/cgroup/pod/container/cpu.max": "max 100000"}, None, id="v2 no quota"),
        pytest.param(
            {
                **V1,
                "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000",
            },
            1.5,
            id="v1",
        ),
        pytest.param(
            {
                **V1,
                "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000",
            },
            None,
            id="v1 no quota",
        ),
    ],
)
def test_cpu_quota_is_read_from_both_kinds_of_cgroup(
    tmp_path: Path, files: dict[str, str], expected: float | None
) -> None:
    assert cpu_quota(machine(tmp_path, files)) == expected


@pytest.mark.parametrize(("quota", "expected"), [("50000", 1), ("100000", 1), ("150000", 2), ("900000", 2)])
def test_threads_follow_the_quota_rounded_up_and_the_processors_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.delenv("OMP_NUM_THREADS")
    root = machine(tmp_path, {**V2, "sys/fs/cgroup/pod/container/cpu.max": f"{quota} 100000"})
    assert num_threads(root) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert num_threads(root) == 1


def test_resident_bytes_leave_mapped_files_out(tmp_path: Path) -> None:
    assert resident_bytes(machine(tmp_path, {})) == 100 * 1024


def test_peak_meter_sees_memory_that_was_given_back() -> None:
    before = resident_bytes()
    meter = PeakMeter()
    held = bytearray(os.urandom(1)) * (64 * MIB)
    del held
    assert meter.peak_bytes() > before + 48 * MIB


def test_budget_grows_byte_by_byte_with_the_limit_beyond_the_least_headroom() -> None:
    small = kv_budget_bytes(limit_bytes=1000 * MIB, peak_bytes=600 * MIB, attention_bytes=10 * MIB)
    assert small == (1000 - 600 - 10 - 64) * MIB
    assert kv_budget_bytes(limit_bytes=100 * MIB, peak_bytes=600 * MIB, attention_bytes=0) < 0


def test_limit_that_cannot_hold_the_weights_is_refused_with_need_and_have() -> None:
    with pytest.raises(InsufficientMemory, match=r"weights take 5000 MiB.*have 3000 MiB") as raised:
        require_room_for_weights(weights_bytes=5000 * MIB, limit_bytes=3000 * MIB)
    assert raised.value.reason == "InsufficientMemory"
    assert raised.value.need_bytes > raised.value.have_bytes == 3000 * MIB


def test_limit_that_leaves_no_block_is_refused_with_need_and_have() -> None:
    with pytest.raises(InsufficientMemory, match=r"need 1032 MiB for two blocks, have 1000 MiB"):
        require_room_for_blocks(budget_bytes=-30 * MIB, block_bytes=MIB, limit_bytes=1000 * MIB)
    assert require_room_for_blocks(budget_bytes=30 * MIB, block_bytes=MIB, limit_bytes=1000 * MIB) == 30


def test_engine_refuses_to_start_where_the_limit_cannot_hold_it(tmp_path: Path) -> None:
    model_dir = save_tiny_model(tmp_path)
    with pytest.raises(InsufficientMemory, match="Raise the memory limit"):
        load_engine(model_dir, memory_limit_bytes=8 * MIB)
    with pytest.raises(InsufficientMemory, match="for the KV cache"):
        load_engine(
            model_dir,
            num_kv_blocks=None,
            block_size=8192,  # 8 MiB
            memory_limit_bytes=resident_bytes() + 70 * MIB,
        )
