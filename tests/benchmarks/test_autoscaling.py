"""The proof's arithmetic, that its committed result is what a repetition gives, and the law of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.autoscaling.__main__ import place_to_keep
from benchmarks.autoscaling.cases import COMPARED, OCTAVO, SEEDS, SWEEPS, Case, all_cases, run_case
from benchmarks.autoscaling.frontier import hours_at, medians
from benchmarks.autoscaling.result_page import PAGE, PNG, SVG, as_tables, read_result, with_tables
from benchmarks.autoscaling.savings import saving_by_load, saving_by_seed
from benchmarks.autoscaling.step_fit import fit_steps, read_steps
from benchmarks.autoscaling.sweep import key_of, read_outcomes
from benchmarks.autoscaling.tables import claim_table
from octavo_operator.simulation.outcome import Outcome

RENEW = "the committed result is of another planner or simulator: renew it with --write"
OUTCOME = Outcome(
    policy=OCTAVO,
    workload="conv",
    seed=0,
    cold_start_seconds=180.0,
    num_requests=1000,
    attained_percent=97.0,
    ttft_percent=98.0,
    tpot_percent=99.0,
    replica_hours=40.0,
    mean_replicas=20.0,
    reversals_per_hour=4.0,
    aborted=0,
    lost=0,
    unanswered=0,
    preemptions=3,
    lowered_in_blackout=0,
)


def by_case(*outcomes: Outcome) -> dict[Case, Outcome]:
    return {key_of(one): one for one in outcomes}


def sweep(*points: tuple[float, float], seed: int = 0) -> list[Outcome]:
    """Of all targets; those beyond the points are like the last one."""
    padded = [*points, *([points[-1]] * (len(SWEEPS["conv"]) - len(points)))]
    return [
        replace(OUTCOME, policy=name, seed=seed, attained_percent=attained, replica_hours=hours)
        for name, (attained, hours) in zip(SWEEPS["conv"], padded, strict=True)
    ]


FRONTIER = sweep((99.5, 60), (99.0, 55), (98.0, 50), (96.0, 45), (90.0, 44), (70.0, 50))


@pytest.mark.parametrize(
    ("attained", "hours"),
    [
        pytest.param(97.0, 47.5, id="between two targets"),
        pytest.param(60.0, 44.0, id="below all: the cheapest"),
        pytest.param(93.0, 44.5, id="the cheaper branch"),
        pytest.param(99.9, None, id="out of reach"),
    ],
)
def test_hours_at_equal_attainment_lie_on_the_baselines_own_sweep(
    attained: float, hours: float | None
) -> None:
    assert hours_at([(one.attained_percent, one.replica_hours) for one in FRONTIER], attained) == hours


def test_saving_compares_seed_by_seed_and_only_whole_sweeps() -> None:
    other_seed = replace(OUTCOME, seed=1)
    found = saving_by_seed(by_case(OUTCOME, other_seed, *FRONTIER), "conv", 180.0)
    assert found.percents == (pytest.approx(100 * (1 - 40 / 47.5)),)
    assert found.out_of_reach == 0


def test_one_target_for_the_load_is_the_same_for_every_seed() -> None:
    """In the median of the seeds it attains what the planner does; one seed alone would take another."""
    ours = [OUTCOME, replace(OUTCOME, seed=1, replica_hours=20.0)]
    cheap = sweep((99.0, 30), (95.0, 22), (94.0, 15), seed=1)
    dear = sweep((99.0, 60), (95.0, 50), (80.0, 45))
    found = saving_by_load(by_case(*ours, *cheap, *dear), "conv", 180.0)
    assert found.percents == (pytest.approx(100 * (1 - 40 / 55)), pytest.approx(100 * (1 - 20 / 26)))


def test_one_target_out_of_reach_is_out_of_reach_for_all_seeds() -> None:
    better = replace(OUTCOME, attained_percent=99.9)
    found = saving_by_load(by_case(better, *FRONTIER), "conv", 180.0)
    assert (found.percents, found.out_of_reach, found.percent) == ((), 1, None)


def test_seed_that_no_target_reaches_counts_as_the_highest_saving() -> None:
    better = replace(OUTCOME, attained_percent=99.9)
    found = saving_by_seed(by_case(better, *FRONTIER), "conv", 180.0)
    assert (found.percents, found.out_of_reach, found.percent) == ((), 1, None)


def test_claim_that_does_not_hold_says_no() -> None:
    table = claim_table(by_case(replace(OUTCOME, attained_percent=94.9, aborted=2), *FRONTIER))
    assert "94.9 % (worst of 1 seeds 94.9 %) for 40.0 replica-hours | **no** |" in table
    assert "2 aborted in 1 runs | **no** |" in table


def test_medians_are_of_all_seeds() -> None:
    outcomes = [replace(OUTCOME, seed=seed, replica_hours=float(seed)) for seed in (1, 9, 2)]
    (point,) = medians(outcomes)
    assert (point.replica_hours, point.num_seeds) == (2.0, 3)


def test_half_a_line_of_kept_outcomes_is_left_out(tmp_path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text('{"policy": "Octavo", "workl')
    assert read_outcomes(path) == {}


# The law of a step --------------------------------------------------------------------------------------


def test_outcomes_of_an_earlier_planner_are_not_counted_in(tmp_path) -> None:
    planner = tmp_path / "operator/octavo_operator/decide/scaling/planner.py"
    planner.parent.mkdir(parents=True)
    planner.write_text("HEADROOM = 1.15\n")
    before = place_to_keep(tmp_path)
    assert place_to_keep(tmp_path) == before
    planner.write_text("HEADROOM = 1.2\n")
    assert place_to_keep(tmp_path) != before


def test_law_tells_the_times_of_recorded_steps_of_the_real_engine() -> None:
    """Fitted to every other step; the machine was shared, so single steps stray more than their sum."""
    fit = fit_steps(read_steps())
    assert fit.num_steps > 80
    assert fit.median_error < 0.3
    assert fit.total_error < 0.1


# The committed result -----------------------------------------------------------------------------------


def test_committed_page_shows_the_committed_result() -> None:
    outcomes, date = read_result()
    page = PAGE.read_text()
    assert page == with_tables(page, outcomes, date=date)
    assert as_tables(outcomes, date=date) in page
    assert PNG.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in SVG.read_text()


def test_committed_result_holds_only_planned_runs_and_never_falls_blind() -> None:
    outcomes, _ = read_result()
    assert set(outcomes) <= set(all_cases())
    ours = [one for one in outcomes.values() if one.policy == OCTAVO]
    assert sum(one.aborted for one in ours) == 0
    assert sum(one.lowered_in_blackout for one in ours) == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", [OCTAVO, COMPARED])
def test_committed_outcome_is_what_a_repetition_gives(policy: str) -> None:
    outcomes, _ = read_result()
    case = Case(workload="mix", seed=SEEDS[0], cold_start_seconds=180.0, policy=policy)
    assert run_case(case) == outcomes[case], RENEW


@pytest.mark.slow
def test_planner_keeps_the_objective_and_never_falls_in_a_blackout() -> None:
    for workload in ("conv", "blackout"):
        outcome = run_case(Case(workload=workload, seed=SEEDS[1], cold_start_seconds=180.0, policy=OCTAVO))
        assert outcome.attained_percent >= 95
        assert outcome.reversals_per_hour <= 10
        assert (outcome.aborted, outcome.lowered_in_blackout) == (0, 0)
