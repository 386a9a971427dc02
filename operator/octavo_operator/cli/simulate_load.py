"""The load that `octavo simulate` runs: a recorded trace, or a named shape at a given or a chosen rate."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final, Literal

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.scaling.explain import shown_rate
from octavo_operator.decide.scaling.sizing import Need
from octavo_operator.simulation.engine_law import SimulatedEngine
from octavo_operator.simulation.first_need import first_need
from octavo_operator.simulation.planned_engine import fitting
from octavo_operator.simulation.run import Setting
from octavo_operator.simulation.trace import parse_trace
from octavo_operator.simulation.workloads import Workload, draw_workload

MOST_RATE: Final = 1000.0
"""Requests per second; two hours of it are seven million requests."""
MOST_DAYS: Final = 31
"""Of a trace; one wrong year in it would be simulated for hours."""
SECONDS_IN_A_DAY: Final = 86400.0
NEEDED_SHARE: Final = 0.5
"""Of maxReplicas, for a chosen rate: room for peaks above, and for giving up replicas below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Requests per second in the mean, longer ones included, and where the number comes from."""

    requests_per_second: float
    source: Literal["trace", "given", "chosen"]
    reason: str = ""
    """Why this one was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of the service."""

    workload: Workload
    """The requests that its engine takes."""
    refused: int
    """Longer ones."""
    rate: Rate
    out_of_reach: str = ""
    """Why even one such request misses the objective on a replica of its own; empty where it does not."""


def read_load(options: argparse.Namespace, setting: Setting, policy: Autoscaling) -> Load:
    """As the flags ask for it; of a shape without a rate, at one that is chosen."""
    if options.trace is not None:
        workload, rate = _read_trace(options)
    else:
        workload, rate = _draw_shape(options, setting, policy)
    kept, refused = _fitting_some(workload, setting.engine)
    need = first_need(kept.requests, setting.engine, policy, cold_start_seconds=setting.cold_start_seconds)
    return Load(workload=kept, refused=refused, rate=rate, out_of_reach=need.model.capacity.infeasible)


def _read_trace(options: argparse.Namespace) -> tuple[Workload, Rate]:
    if options.rps is not None:
        raise InvalidSpec("--rps: goes with --shape; a trace has its own rate")
    try:
        with options.trace.open(newline="", encoding="utf-8-sig") as lines:
            workload = parse_trace(lines, name=options.trace.name)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"--trace: {options.trace} cannot be read: {error}") from None
    days = workload.seconds / SECONDS_IN_A_DAY
    if days > MOST_DAYS:
        raise InvalidSpec(
            f"--trace: {options.trace} lasts {days:.0f} days, above the {MOST_DAYS} that are simulated at "
            "most; mend its times, or cut it"
        )
    return workload, Rate(requests_per_second=_mean_rate(workload), source="trace")


def _draw_shape(options: argparse.Namespace, setting: Setting, policy: Autoscaling) -> tuple[Workload, Rate]:
    usual = draw_workload(options.shape, options.seed)
    rate = _given_rate(options) or choose_rate(usual, setting, policy)
    scale = rate.requests_per_second / _mean_rate(usual)
    return draw_workload(options.shape, options.seed, scale=scale), rate


def _mean_rate(workload: Workload) -> float:
    return len(workload.requests.arrival) / workload.seconds


def _given_rate(options: argparse.Namespace) -> Rate | None:
    if options.rps is None:
        return None
    if not 0 < options.rps <= MOST_RATE:
        raise InvalidSpec(
            f"--rps: must be above 0 and at most {MOST_RATE:.0f}, got {options.rps}; leave it out to have "
            "one chosen"
        )
    return Rate(requests_per_second=options.rps, source="given")


def choose_rate(usual: Workload, setting: Setting, policy: Autoscaling) -> Rate:
    """That for which the planner, before it has measured anything, needs half of maxReplicas.

    Three digits of it, so that `--rps` with what is shown repeats the run.
    """
    kept, refused = _fitting_some(usual, setting.engine)
    need = first_need(kept.requests, setting.engine, policy, cold_start_seconds=setting.cold_start_seconds)
    if need.model.capacity.infeasible:
        raise InvalidSpec(
            "--rps: none can be chosen, since no number of replicas keeps the objective: "
            f"{need.model.capacity.infeasible}; give --rps to simulate all the same, or another objective "
            "(--slo)"
        )
    taken = NEEDED_SHARE * policy.max_replicas / (need.work * need.headroom)
    count = len(kept.requests.arrival)
    rate = float(f"{taken * (count + refused) / count:.3g}")
    if rate > MOST_RATE:
        raise InvalidSpec(
            f"--rps: half of maxReplicas ({policy.max_replicas}) would take {shown_rate(rate)} requests per "
            f"second, above the {MOST_RATE:.0f} that are simulated at most; give --rps"
        )
    return Rate(requests_per_second=rate, source="chosen", reason=_why(need, taken, policy, refused))


def _why(need: Need, taken: float, policy: Autoscaling, refused: int) -> str:
    some = " of requests that fit" if refused else ""
    return (
        f"the planner would need half of maxReplicas ({policy.max_replicas}) for it, before it has measured "
        f"a step: {shown_rate(taken)} req/s{some} × {need.headroom:.2f} headroom / "
        f"{shown_rate(need.replica_rate)} req/s per replica ({need.model.capacity.limited_by}-bound)"
    )


def _fitting_some(workload: Workload, engine: SimulatedEngine) -> tuple[Workload, int]:
    """Those that the engine would accept, at least one, and how many it would refuse."""
    kept, refused = fitting(workload, engine)
    if len(kept.requests.arrival):
        return kept, refused
    if refused:
        raise InvalidSpec(f"no request fits into {engine.max_model_len} tokens; set spec.engine.maxModelLen")
    raise InvalidSpec(
        f"--rps: at this rate not one request comes in {workload.seconds / 60:.0f} min; give a higher one"
    )
