"""`octavo simulate --shape NAME` without `--rps`: a rate that suits the service, and why it was chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import Autoscaling
from octavo_operator.cli.simulate_command import build_parser, main
from octavo_operator.cli.simulate_load import Load, choose_rate, read_load
from octavo_operator.simulation.engine_law import A10_8B
from octavo_operator.simulation.first_need import first_need
from octavo_operator.simulation.run import Setting
from octavo_operator.simulation.workloads import draw_workload
from tests.octavo_operator.cli.test_render import Files
from tests.octavo_operator.decide.test_sizing import LLAMA_8B

SLO = "ttft=4000,tpot=120"
SETTING = Setting(engine=A10_8B, initial_replicas=1)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Llama of 8B parameters on one A10G: some half a request a second."""
    made = Files(tmp_path)
    made.config.write_text(json.dumps(LLAMA_8B))
    made.write(
        accelerator={"type": "A10G-24GB"},
        engine={"maxModelLen": 8192},
        autoscaling={"minReplicas": 1, "maxReplicas": 6},
    )
    return made


def arguments(files: Files, *more: str) -> list[str]:
    return ["-f", str(files.service), "--model-config", str(files.config), *more]


def load_of(*flags: str, policy: Autoscaling) -> Load:
    return read_load(build_parser().parse_args(["-f", "-", *flags]), SETTING, policy)


def test_shape_without_a_rate_keeps_about_half_of_the_replicas_busy(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(files, "--shape", "conv", "--slo", SLO, "--output", "json")) == 0
    answer = json.loads(capsys.readouterr().out)
    ours = answer["outcomes"][0]
    assert 2 < ours["mean_replicas"] < 5
    assert answer["rate"]["source"] == "chosen"
    assert "half of maxReplicas (6)" in answer["rate"]["reason"]
    assert answer["rate"]["requestsPerSecond"] == pytest.approx(answer["requests"] / 7200, rel=0.05)


def test_table_says_which_rate_was_chosen_and_why(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(files, "--shape", "low", "--slo", SLO)) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("Rate: ")]
    assert "req/s was chosen (--rps " in line
    assert "half of maxReplicas (6)" in line
    assert "req/s per replica" in line


@pytest.mark.parametrize("shape", ["conv", "code", "mix"])
def test_rate_that_was_chosen_repeats_the_run_when_given(shape: str) -> None:
    policy = Autoscaling(max_replicas=10)
    chosen = load_of("--shape", shape, policy=policy)
    given = load_of("--shape", shape, "--rps", f"{chosen.rate.requests_per_second:g}", policy=policy)
    assert (chosen.rate.source, given.rate.source) == ("chosen", "given")
    assert chosen.workload.requests.arrival.tolist() == given.workload.requests.arrival.tolist()


def test_chosen_rate_grows_with_max_replicas() -> None:
    usual = draw_workload("conv", 0)
    few, many = (
        choose_rate(usual, SETTING, Autoscaling(max_replicas=number)).requests_per_second
        for number in (10, 40)
    )
    assert many == pytest.approx(4 * few, rel=0.01)


def test_half_of_max_replicas_is_needed_for_the_requests_that_fit() -> None:
    """Longer ones are drawn and left out, so more than what is needed has to be drawn."""
    short, policy = replace(SETTING, engine=replace(A10_8B, max_model_len=1024)), Autoscaling(max_replicas=10)
    load = read_load(build_parser().parse_args(["-f", "-", "--shape", "conv"]), short, policy)
    kept = load.workload.requests
    need = first_need(kept, short.engine, policy, cold_start_seconds=180)
    assert load.refused > 0.2 * len(kept.arrival)
    rate = len(kept.arrival) / load.workload.seconds
    assert rate * need.work * need.headroom == pytest.approx(5, rel=0.03)
    assert "req/s of requests that fit" in load.rate.reason


@pytest.mark.parametrize(
    ("setting", "policy", "words"),
    [
        pytest.param(
            SETTING,
            Autoscaling.model_validate({"maxReplicas": 4, "slo": {"tpotMilliseconds": 5}}),
            r"--rps: none can be chosen.* ms before any work, the objective for TPOT is 5 ms; give --rps",
            id="objective that one request misses",
        ),
        pytest.param(
            SETTING,
            Autoscaling(max_replicas=1000, min_replicas=1).model_copy(update={"max_replicas": 100_000}),
            r"--rps: half of maxReplicas \(100000\) would take \d+ requests per second, above the 1000",
            id="more than is simulated",
        ),
        pytest.param(
            replace(SETTING, engine=replace(A10_8B, max_model_len=1)),
            Autoscaling(max_replicas=4),
            "no request fits into 1 tokens; set spec.engine.maxModelLen",
            id="nothing fits",
        ),
    ],
)
def test_rate_that_cannot_be_chosen_says_why_and_what_to_do(
    setting: Setting, policy: Autoscaling, words: str
) -> None:
    with pytest.raises(InvalidSpec, match=words):
        choose_rate(draw_workload("conv", 0), setting, policy)
