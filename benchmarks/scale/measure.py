"""The measurements: how long, how much memory, how many API calls."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from benchmarks.scale.crowd import (
    Kubelet,
    apply_service,
    look,
    make_foreign_pod,
    many,
    service_name,
)
from tests.cluster.stage import PLURAL, REPO, Stage

MIB: Final = 1 << 20
SETTLE_SECONDS: Final = 5.0
READY_SECONDS: Final = 1800.0
LOOK_SECONDS: Final = 2.0
"""Between two looks at all services, which are megabytes; so much too long may the time be."""
LEASES: Final = "leases"
WRITES: Final = frozenset({"create", "update", "patch", "delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one run found; seconds unless the name says otherwise."""

    services: int
    foreign_pods: int
    all_ready_seconds: float
    """From the first apply to the last Ready=True."""
    operator_peak_mib: float
    steady_calls_per_minute: float
    """Requests of the operator while nothing changes."""
    edit_median_seconds: float
    """From an edit of one service, the rest idle, to the Deployment that has it."""
    edit_max_seconds: float
    restart_calls: dict[str, int]
    """Requests by verb from a restart until it is quiet again."""
    restart_writes: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(stage: Stage, *, services: int, foreign_pods: int, edits: int, idle_seconds: float) -> Figures:
    stage.store.tag(REPO, "v1", stage.add_commit("one"))
    progress = partial(tqdm, leave=False)
    list(
        progress(
            many(partial(make_foreign_pod, stage, one) for one in range(foreign_pods)),
            "foreign pods",
            foreign_pods,
        )
    )
    stage.start_operator()
    began = time.monotonic()
    with Kubelet(stage):
        list(
            progress(
                many(partial(apply_service, stage, one) for one in range(services)), "services", services
            )
        )
        wait_all_ready(stage, services)
        all_ready = time.monotonic() - began
        time.sleep(SETTLE_SECONDS)
        steady = calls_during(stage, idle_seconds)
        delays = [edit_delay(stage, index % services) for index in progress(range(edits), "edits")]
        wait_all_ready(stage, services)
        time.sleep(SETTLE_SECONDS)
    peak = peak_mib(stage)
    restart = restart_calls(stage, idle_seconds)
    return Figures(
        services=services,
        foreign_pods=foreign_pods,
        all_ready_seconds=round(all_ready, 1),
        operator_peak_mib=round(max(peak, peak_mib(stage)), 1),
        steady_calls_per_minute=round(60 * sum(steady.values()) / idle_seconds, 1),
        edit_median_seconds=round(statistics.median(delays), 3),
        edit_max_seconds=round(max(delays), 3),
        restart_calls=dict(restart),
        restart_writes=sum(count for verb, count in restart.items() if verb in WRITES),
    )


def wait_all_ready(stage: Stage, services: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    with tqdm(total=services, desc="ready", leave=False) as bar:
        while bar.n < services:
            stage.require_operator()
            bar.update(count_ready(stage) - bar.n)
            assert time.monotonic() < deadline, f"{bar.n} of {services} services are ready"
            time.sleep(LOOK_SECONDS)


def count_ready(stage: Stage) -> int:
    return sum(
        any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in body.get("status", {}).get("conditions", ())
        )
        for body in look(stage, PLURAL)
    )


def calls_so_far(stage: Stage) -> Counter[str]:
    """Requests of the operator's account by verb; its Lease is six renewals a minute, whatever it does."""
    return Counter(request.verb for request in stage.asked() if request.resource != LEASES)


def calls_during(stage: Stage, seconds: float) -> Counter[str]:
    before = calls_so_far(stage)
    time.sleep(seconds)
    return calls_so_far(stage) - before


def edit_delay(stage: Stage, index: int) -> float:
    """Replicas of one service are changed; measured at its Deployment."""
    name = service_name(index)
    (deployment,) = stage.list("deployments", f"octavo.dev/service={name}")
    wanted = deployment["spec"]["replicas"] % 2 + 1
    began = time.monotonic()
    apply_service(stage, index, replicas=wanted)
    path = stage.path("deployments", deployment["metadata"]["name"])
    while stage.client.get(path).json()["spec"]["replicas"] != wanted:
        assert time.monotonic() < began + 60, f"{name} was edited and its Deployment never was"
        time.sleep(0.005)
    return time.monotonic() - began


def restart_calls(stage: Stage, quiet_seconds: float) -> Counter[str]:
    stage.stop_operator()
    before = calls_so_far(stage)
    stage.start_operator()
    known: Counter[str] = Counter()
    while True:
        time.sleep(quiet_seconds)
        now = calls_so_far(stage) - before
        if now == known and now:
            return now
        known = now


def peak_mib(stage: Stage) -> float:
    """Most memory that the running operator ever held resident."""
    assert stage.process is not None
    status = Path(f"/proc/{stage.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / MIB
