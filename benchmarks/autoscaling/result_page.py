"""The committed result: outcomes as lines of JSON, the tables in the page on the proof, its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.autoscaling.cases import SWEEPS, Case, all_cases
from benchmarks.autoscaling.plot import write_plots
from benchmarks.autoscaling.sweep import key_of
from benchmarks.autoscaling.tables import claim_table, load_table, policy_table
from octavo_operator.simulation.outcome import Outcome

ROOT: Final = Path(__file__).parents[2]
RESULT: Final = Path(__file__).with_name("result.json")
PAGE: Final = ROOT / "docs" / "concepts" / "autoscaling-proof.md"
PNG: Final = ROOT / "docs" / "concepts" / "autoscaling-proof.png"
SVG: Final = ROOT / "docs" / "concepts" / "autoscaling-proof.svg"
BEGIN: Final = "<!-- begin: written by python -m benchmarks.autoscaling --write -->"
END: Final = "<!-- end -->"
WORKLOAD: Final = (
    "conv, code, mix, shift, step, spike, diurnal, low and blackout of octavo_operator.simulation.workloads, "
    "lengths fitted to the Azure LLM inference traces 2023 (Microsoft, CC-BY 4.0)"
)
CONDITIONS: Final = {
    "replica": "A10_8B of octavo_operator.simulation.engine_law: 10 % noise, a stall in 2000 steps",
    "objective": "95 % of requests with TTFT up to 2 s and mean TPOT up to 80 ms",
    "routing": "the one with fewer requests in flight of two pods at random",
    "counted": "from the tenth minute on; replica-hours from a pod's creation until it is gone",
    "drain": "10 s accepting and 120 s more, then aborted and counted",
    "scraping": "every 10 s, KPA every 2 s; HPA and KEDA decide every 15 s, the planner every 10 s",
    "machine": "of no effect: time is simulated",
}
RETEST: Final = (
    "A change in decide/scaling, octavo.capacity, octavo.step_learning or the simulation. tests/benchmarks "
    "repeats runs and fails then; renew with python -m benchmarks.autoscaling --write"
)


def write_result(outcomes: Mapping[Case, Outcome], *, date: str) -> None:
    """Renew the data, the page and the figures."""
    RESULT.write_text(as_json(outcomes, date=date))
    PAGE.write_text(with_tables(PAGE.read_text(), outcomes, date=date))
    write_plots(outcomes, png=PNG, svg=SVG)


def as_json(outcomes: Mapping[Case, Outcome], *, date: str) -> str:
    head = {"date": date, "workload": WORKLOAD, "conditions": CONDITIONS, "retest": RETEST}
    lines = ",\n".join(f"  {json.dumps(asdict(one))}" for one in outcomes.values())
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "outcomes": [\n{lines}\n ]\n}}\n'


def read_result(path: Path = RESULT) -> tuple[dict[Case, Outcome], str]:
    """The committed outcomes and their date."""
    document = json.loads(path.read_text())
    outcomes = [Outcome(**fields) for fields in document["outcomes"]]
    return {key_of(one): one for one in outcomes}, document["date"]


def as_tables(outcomes: Mapping[Case, Outcome], *, date: str) -> str:
    missing = sum(case not in outcomes for case in dict.fromkeys(all_cases()))
    left_out = f"; {missing} runs of the whole plan were left out" if missing else ""
    parts = [f"{len(outcomes)} runs of {date}{left_out}.", claim_table(outcomes)]
    parts += ["## Every load", load_table(outcomes)]
    for workload in SWEEPS:
        for cold_start in (180.0, 60.0):
            parts.append(f"## {workload}, cold start {cold_start:.0f} s")
            parts.append(policy_table(outcomes, workload, cold_start))
    return "\n\n".join(parts)


def with_tables(page: str, outcomes: Mapping[Case, Outcome], *, date: str) -> str:
    """The page with the tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has lost its marks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{as_tables(outcomes, date=date)}\n{END}{after}"
