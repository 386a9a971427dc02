"""Runs the cases on all cores, and keeps each outcome as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from benchmarks.autoscaling.cases import Case, run_case
from octavo_operator.simulation.outcome import Outcome


def key_of(outcome: Outcome) -> Case:
    """The case that an outcome is of."""
    return Case(
        workload=outcome.workload,
        seed=outcome.seed,
        cold_start_seconds=outcome.cold_start_seconds,
        policy=outcome.policy,
    )


def read_outcomes(path: Path) -> dict[Case, Outcome]:
    """What was run before; a half-written last line is left out."""
    found: dict[Case, Outcome] = {}
    if not path.is_file():
        return found
    for line in path.read_text().splitlines():
        try:
            outcome = Outcome(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        found[key_of(outcome)] = outcome
    return found


def run_cases(cases: Iterable[Case], *, kept: Path, processes: int) -> dict[Case, Outcome]:
    """All outcomes; those that `kept` has already are not run again."""
    wanted = list(dict.fromkeys(cases))
    known = {case: outcome for case, outcome in read_outcomes(kept).items() if case in wanted}
    with kept.open("a") as file:
        for outcome in _run([case for case in wanted if case not in known], processes):
            known[key_of(outcome)] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
    return {case: known[case] for case in wanted}


def _run(cases: list[Case], processes: int) -> Iterator[Outcome]:
    with ProcessPoolExecutor(processes) as pool, tqdm(total=len(cases), unit=" runs") as bar:
        for future in as_completed([pool.submit(run_case, case) for case in cases]):
            bar.update()
            yield future.result()
