"""How much memory and processor this process may use, and what that leaves for the KV cache.

A container's limits are those of its cgroup, not of the machine. Limits of all levels above count,
the smallest one holds. Nothing here looks at the operator's plan: the engine measures for itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from octavo_engine.errors import InsufficientMemory

MIB: Final = 1 << 20
UNLIMITED_V1: Final = 1 << 60
"""cgroup v1 writes a number near 2**63 where there is no limit."""
AVAILABLE_SHARE: Final = 0.9
"""Of the machine's available memory, where no cgroup limits it."""
HEADROOM_BYTES: Final = 64 * MIB
HEADROOM_RATIO: Final = 0.02
"""Kept free of the limit: allocator slack, HTTP buffers, tokenizer threads."""


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """The cgroup's limit, or else 90 % of what the machine has available on top of our own use."""
    limit = cgroup_limit_bytes(root)
    if limit is not None:
        return limit
    return int(AVAILABLE_SHARE * (_meminfo_bytes(root, "MemAvailable") + resident_bytes(root)))


def cgroup_limit_bytes(root: Path = Path("/")) -> int | None:
    """The smallest limit of our cgroup and those above it, None where there is none."""
    return min(_memory_limits(root), default=None)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the cgroup grants, None without a quota."""
    quotas = list(_cpu_quotas(root))
    return min(quotas) if quotas else None


def num_threads(root: Path = Path("/")) -> int:
    """Threads that can compute at once: the quota rounded up, at most the processors given to us.

    `OMP_NUM_THREADS` lowers it, as everywhere.
    """
    bounds = [len(os.sched_getaffinity(0))]
    quota = cpu_quota(root)
    if quota is not None:
        bounds.append(-int(-quota // 1))
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal():
        bounds.append(int(asked))
    return max(1, min(bounds))


def resident_bytes(root: Path = Path("/")) -> int:
    """Memory in use that the kernel cannot take back: anonymous and shared pages, not mapped files."""
    status = _status_bytes(root)
    return status.get("RssAnon", status.get("VmRSS", 0)) + status.get("RssShmem", 0)


class PeakMeter:
    """Measures the highest resident size between its making and `peak_bytes()`."""

    def __init__(self) -> None:
        self.before_bytes: Final = resident_bytes()
        with suppress(OSError):  # a kernel without it keeps the older, higher peak: a cautious answer
            Path("/proc/self/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The peak, mapped files left out."""
        status = _status_bytes(Path("/"))
        return max(status.get("VmHWM", 0) - status.get("RssFile", 0), resident_bytes())


def kv_budget_bytes(*, limit_bytes: int, peak_bytes: int, attention_bytes: int) -> int:
    """What the limit leaves for keys and values after the measured peak; may be negative."""
    headroom = max(HEADROOM_BYTES, int(limit_bytes * HEADROOM_RATIO))
    return limit_bytes - peak_bytes - attention_bytes - headroom


def require_room_for_weights(*, weights_bytes: int, limit_bytes: int) -> None:
    """Refuse before loading what could only end in an out-of-memory kill."""
    need = weights_bytes + resident_bytes() + HEADROOM_BYTES
    if need > limit_bytes:
        raise InsufficientMemory(
            f"the weights take {format_mib(weights_bytes)} and the process {format_mib(resident_bytes())} "
            f"besides: need {format_mib(need)}, have {format_mib(limit_bytes)}. "
            "Raise the memory limit or choose a smaller dtype.",
            need_bytes=need,
            have_bytes=limit_bytes,
        )


def require_room_for_blocks(*, budget_bytes: int, block_bytes: int, limit_bytes: int) -> int:
    """How many blocks the budget holds; refused if not even two."""
    blocks = budget_bytes // block_bytes
    if blocks < 2:
        need = limit_bytes - budget_bytes + 2 * block_bytes
        raise InsufficientMemory(
            f"weights and working memory leave {format_mib(max(0, budget_bytes))} for the KV cache: "
            f"need {format_mib(need)} for two blocks, have {format_mib(limit_bytes)}. "
            "Raise the memory limit or lower max_num_batched_tokens.",
            need_bytes=need,
            have_bytes=limit_bytes,
        )
    return blocks


def format_mib(num_bytes: int) -> str:
    """Mebibytes, as a person reads them.

    >>> format_mib(300 * 1024 * 1024)
    '300 MiB'
    """
    return f"{num_bytes / MIB:.0f} MiB"


def _memory_limits(root: Path) -> Iterator[int]:
    for directory in _cgroup_directories(root, controller="memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(directory / name)
            if text.isdecimal() and int(text) < UNLIMITED_V1:
                yield int(text)


def _cpu_quotas(root: Path) -> Iterator[float]:
    for directory in _cgroup_directories(root, controller="cpu"):
        words = _read(directory / "cpu.max").split()  # v2: "50000 100000" or "max 100000"
        if not words:
            words = [_read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdecimal() for word in words):
            yield int(words[0]) / int(words[1])


def _cgroup_directories(root: Path, *, controller: str) -> Iterator[Path]:
    """Our cgroup and those above it, as far as they can be seen, for v2 and v1."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        below = Path(path.lstrip("/"))
        yield mount / below
        yield from (mount / parent for parent in below.parents if str(parent) != str(below))


def _status_bytes(root: Path) -> dict[str, int]:
    """Sizes of /proc/self/status, in bytes."""
    sizes: dict[str, int] = {}
    for line in _read(root / "proc/self/status").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            sizes[words[0].rstrip(":")] = int(words[1]) * 1024
    return sizes


def _meminfo_bytes(root: Path, name: str) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
