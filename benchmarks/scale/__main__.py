"""`python -m benchmarks.scale`: a thousand services on a real API server, what they ask of the operator.

No node runs anything: pods are made by the real controllers and marked ready by the benchmark. It fails where
one of the limits below is passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from benchmarks.scale.measure import Figures, run
from octavo.cli.plan_command import count
from tests.cluster.local.cluster import start_light
from tests.cluster.stage import Stage, install_definition
from tests.support.model_hub import HubStore, ModelHub

CLIENT_SECONDS: Final = 120.0
"""For the benchmark's own requests, some of which list a thousand objects."""
MOST_MIB: Final = 300
MOST_EDIT_SECONDS: Final = 2.0
MOST_CALLS_PER_MINUTE: Final = 60.0
"""Watches that time out and are opened anew, one for each kind; nothing that grows with the services."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 within the promises, 1 beyond one of them, 2 for a wrong flag."""
    options = parse_arguments(argv)
    figures = measure(options)
    broken = broken_promises(figures)
    if options.output == "json":
        print(json.dumps({"date": date.today().isoformat(), **figures.as_json(), "broken": broken}, indent=2))
    else:
        for name, value in figures.as_json().items():
            print(f"{name:26} {value}")
        print("\n".join(broken) or "all promises held")
    return 1 if broken else 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--services", type=count, default=1000, metavar="N", help="InferenceServices (1000)")
    parser.add_argument("--foreign-pods", type=count, default=5000, metavar="N", help="pods of others (5000)")
    parser.add_argument("--edits", type=count, default=50, metavar="N", help="edits to time (50)")
    parser.add_argument(
        "--idle-seconds", type=count, default=60, metavar="S", help="of watching it idle (60)"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> Figures:
    cluster = start_light(f"scale-{os.getpid()}", owner_pid=os.getpid())
    try:
        install_definition(cluster)
        with tempfile.TemporaryDirectory() as folder, ModelHub(HubStore(Path(folder) / "hub")) as hub:
            stage = Stage(cluster, "scale", hub.store, hub, Path(folder))
            stage.client.timeout = CLIENT_SECONDS
            stage.open()
            try:
                return run(
                    stage,
                    services=options.services,
                    foreign_pods=options.foreign_pods,
                    edits=options.edits,
                    idle_seconds=options.idle_seconds,
                )
            finally:
                stage.close()
    finally:
        cluster.stop(keep_logs=False)


def broken_promises(figures: Figures) -> list[str]:
    limits = (
        ("operator_peak_mib", figures.operator_peak_mib, MOST_MIB),
        ("edit_median_seconds", figures.edit_median_seconds, MOST_EDIT_SECONDS),
        ("steady_calls_per_minute", figures.steady_calls_per_minute, MOST_CALLS_PER_MINUTE),
        ("restart_writes", figures.restart_writes, 0),
    )
    return [f"{name} is {value}, beyond {limit}" for name, value, limit in limits if value > limit]


if __name__ == "__main__":
    sys.exit(main())
