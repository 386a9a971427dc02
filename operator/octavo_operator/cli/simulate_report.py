"""What `octavo simulate` says: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from octavo_operator.cli.simulate_load import Load
from octavo_operator.simulation.comparison import Comparison
from octavo_operator.simulation.engine_law import SimulatedEngine
from octavo_operator.simulation.outcome import Outcome
from octavo_operator.simulation.run import Setting

SHOWN: Final = "▁▂▃▄▅▆▇█"
SHOWN_WIDTH: Final = 60


def as_json(comparison: Comparison, load: Load) -> dict[str, Any]:
    return {
        "workload": load.workload.name,
        "requests": len(load.workload.requests.arrival),
        "refusedForLength": load.refused,
        "rate": {
            "requestsPerSecond": load.rate.requests_per_second,
            "source": load.rate.source,
            "reason": load.rate.reason,
        },
        "outOfReach": load.out_of_reach or None,
        "outcomes": [asdict(outcome) for outcome in comparison.outcomes],
        "decisions": [asdict(moment) for moment in comparison.changes],
    }


def as_text(comparison: Comparison, load: Load, setting: Setting) -> str:
    lines = [
        describe_load(load),
        describe_replica(setting.engine),
        describe_objective(setting),
        *remarks(load, setting),
    ]
    lines += ["", f"{'policy':<22}{'attained':>9}{'TTFT':>8}{'TPOT':>8}{'hours':>9}{'reversals/h':>13}"]
    lines += [_row(outcome) for outcome in comparison.outcomes]
    replicas = [setting.initial_replicas, *(moment.replicas for moment in comparison.planner.moments)]
    lines += ["", f"replicas over time: {sparkline(replicas)} (most {max(replicas)})"]
    lines += [f"  {moment.at:6.0f} s  {moment.message}" for moment in comparison.changes[-3:]]
    return "\n".join(lines)


def describe_load(load: Load) -> str:
    workload = load.workload
    count = len(workload.requests.arrival)
    minutes, rate = workload.seconds / 60, count / workload.seconds
    return f"{workload.name}: {count} requests in {minutes:.0f} min ({rate:.2f} req/s)"


def describe_replica(engine: SimulatedEngine) -> str:
    return f"Replica: {engine.name}, {engine.law.num_blocks} KV blocks of {engine.law.block_tokens} tokens"


def describe_objective(setting: Setting) -> str:
    slo = setting.objective
    return (
        f"Objective: {slo.percent:g} % with TTFT ≤ {1000 * slo.ttft_seconds:.0f} ms and mean TPOT ≤ "
        f"{1000 * slo.tpot_seconds:.0f} ms; {setting.min_replicas} to {setting.max_replicas} replicas"
    )


def remarks(load: Load, setting: Setting) -> list[str]:
    """What is to be known of the load that its figures do not say."""
    found = []
    if load.rate.source == "chosen":
        rate = load.rate.requests_per_second
        found.append(f"Rate: {rate:g} req/s was chosen (--rps {rate:g}): {load.rate.reason}")
    if load.refused:
        found.append(f"{load.refused} longer requests left out: an engine would refuse them")
    if load.out_of_reach:
        found.append(f"No number of replicas keeps the objective: {load.out_of_reach}")
    if load.workload.seconds <= setting.cold_start_seconds:
        found.append(
            "The load is over before a replica that it asks for has started "
            f"({setting.cold_start_seconds:g} s): all policies serve it with minReplicas "
            f"({setting.initial_replicas})"
        )
    return found


def _row(outcome: Outcome) -> str:
    return (
        f"{outcome.policy:<22}{outcome.attained_percent:>7.1f} %{outcome.ttft_percent:>6.1f} %"
        f"{outcome.tpot_percent:>6.1f} %{outcome.replica_hours:>9.2f}{outcome.reversals_per_hour:>13.1f}"
    )


def sparkline(values: Sequence[int]) -> str:
    """
    >>> sparkline([1, 2, 4, 8])
    '▁▂▄█'
    """
    width = min(SHOWN_WIDTH, len(values))
    most = max(values)
    picked = [max(values[len(values) * i // width : len(values) * (i + 1) // width]) for i in range(width)]
    return "".join(SHOWN[max(0, round(len(SHOWN) * value / most) - 1)] for value in picked)
