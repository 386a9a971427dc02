"""`octavo simulate`: a service file and a load in, a comparison out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from octavo.errors import InvalidSpec
from octavo_operator.api.spec.scaling import ServiceLevelObjective
from octavo_operator.cli.simulate_command import main, parse_slo
from octavo_operator.cli.simulate_report import sparkline
from octavo_operator.simulation.trace import parse_trace
from tests.octavo_operator.builders import COMMIT
from tests.octavo_operator.cli.test_render import Files

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write(
        engine={"maxModelLen": 512},
        autoscaling={"minReplicas": 1, "maxReplicas": 4, "slo": {"tpotMilliseconds": 500}},
    )
    return made


def arguments(files: Files, *more: str) -> list[str]:
    return ["-f", str(files.service), "--model-config", str(files.config), *more]


def write_trace(folder: Path, *, count: int, gap: float) -> Path:
    path = folder / "trace.csv"
    rows = [
        f"2026-01-01 00:{int(index * gap) // 60:02d}:{index * gap % 60:09.6f}0,{40 + index % 7},5"
        for index in range(count)
    ]
    path.write_text("\n".join([HEADER, *rows, "2026-01-01 00:29:59.0000000,600,5"]) + "\n")
    return path


def test_simulate_compares_the_planner_with_baselines_on_a_trace(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path, count=300, gap=5.0)
    assert main(arguments(files, "--trace", str(trace), "--output", "json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["requests"], answer["refusedForLength"]) == (300, 1)
    policies = [outcome["policy"] for outcome in answer["outcomes"]]
    assert policies[0] == "Octavo"
    assert any(policy.startswith("KEDA in-flight") for policy in policies)
    assert all(0 <= outcome["attained_percent"] <= 100 for outcome in answer["outcomes"])
    assert all(outcome["replica_hours"] > 0 for outcome in answer["outcomes"])
    assert answer["rate"]["source"] == "trace"
    assert answer["rate"]["requestsPerSecond"] == pytest.approx(301 / 1800, rel=0.01)


def test_simulate_prints_a_table_for_people(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path, count=120, gap=10.0)
    assert main(arguments(files, "--trace", str(trace), "--slo", "ttft=9000,objective=90")) == 0
    printed = capsys.readouterr().out
    assert "90 % with TTFT ≤ 9000 ms and mean TPOT ≤ 500 ms; 1 to 4 replicas" in printed
    assert "1 longer requests left out" in printed
    assert "replicas over time: " in printed


def test_simulate_takes_a_trace_that_ends_before_the_first_decision(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "short.csv"
    trace.write_text(f"{HEADER}\n2026-01-01 00:00:00,40,5\n2026-01-01 00:00:02,40,5\n")
    assert main(arguments(files, "--trace", str(trace))) == 0
    printed = capsys.readouterr().out
    assert "short.csv: 2 requests" in printed
    assert "over before a replica that it asks for has started (180 s): all policies serve it with" in printed


def test_objective_that_no_number_of_replicas_keeps_is_told_with_its_reason(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of zeros alone would look like too few replicas."""
    given = arguments(files, "--trace", str(write_trace(tmp_path, count=20, gap=5.0)), "--slo", "tpot=1")
    assert main([*given]) == 0
    assert "No number of replicas keeps the objective: a step takes " in capsys.readouterr().out
    assert main([*given, "--output", "json"]) == 0
    assert "the objective for TPOT is 1 ms" in json.loads(capsys.readouterr().out)["outOfReach"]


def test_service_that_follows_a_branch_is_simulated_from_a_configuration_alone(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.service.write_text(files.service.read_text().replace(COMMIT, "main"))
    assert main(arguments(files, "--trace", str(write_trace(tmp_path, count=20, gap=5.0)))) == 0
    assert "20 requests" in capsys.readouterr().out


def test_service_may_be_called_service(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, service, *others = arguments(files, "--trace", str(write_trace(tmp_path, count=20, gap=5.0)))
    assert main(["--service", service, *others]) == 0
    assert "20 requests" in capsys.readouterr().out


def test_trace_that_a_spreadsheet_saved_is_read(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It marks the file as UTF-8 in front of the first column's name."""
    trace = tmp_path / "marked.csv"
    trace.write_text(f"{HEADER}\n2026-01-01 00:00:00,40,5\n", encoding="utf-8-sig")
    assert main(arguments(files, "--trace", str(trace))) == 0
    assert "marked.csv: 1 requests" in capsys.readouterr().out


def test_trace_with_a_wrong_year_is_refused_instead_of_simulated_for_hours(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "years.csv"
    trace.write_text(f"{HEADER}\n2016-01-01 00:00:00,40,5\n2026-01-01 00:00:02,40,5\n")
    assert main(arguments(files, "--trace", str(trace))) == 2
    assert "years.csv lasts 3653 days, above the 31" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [pytest.param(True, "\rOctavo: 100 %\033[K\n", id="terminal"), pytest.param(False, "", id="file")],
)
def test_progress_is_shown_on_a_terminal_only(
    files: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    shown: str,
) -> None:
    trace = write_trace(tmp_path, count=20, gap=5.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert main(arguments(files, "--trace", str(trace), "--output", "json")) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["requests"] == 20
    assert shown in printed.err
    assert bool(printed.err) == is_terminal


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(
            ["--shape", "conv", "--rps", "0"], "--rps: must be above 0 and at most 1000, got 0", id="0"
        ),
        pytest.param(["--shape", "conv", "--rps", "1e-9"], "--rps: at this rate not one", id="no requests"),
        pytest.param(["--trace", "/nowhere.csv"], "--trace: /nowhere.csv cannot be read", id="no trace"),
        pytest.param(
            ["--shape", "conv", "--rps", "1", "--slo", "ttft=fast"],
            "--slo: 'ttft=fast' must be",
            id="no number",
        ),
        pytest.param(
            ["--shape", "conv", "--rps", "1", "--slo", "objective=100"],
            "--slo: objective: Input should be less than or equal to 99, got 100\n",
            id="too much",
        ),
        pytest.param(
            ["--shape", "conv", "--rps", "1", "--slo", "ttft=²"], "in whole numbers", id="no such digit"
        ),
        pytest.param(["--shape", "low", "--seed", "-1"], "--seed: must be from 0 up, got -1", id="seed"),
        pytest.param(["--shape", "low", "--rps", "0.1", "--cold-start", "0"], "--cold-start", id="no time"),
    ],
)
def test_simulate_refuses_what_it_cannot_run(
    files: Files, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main(arguments(files, *flags)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(["a,b"], "no column ContextTokens, GeneratedTokens, TIMESTAMP", id="other columns"),
        pytest.param([HEADER], "holds no request", id="empty"),
        pytest.param([HEADER, "yesterday,1,1"], "line 2", id="no time"),
        pytest.param([HEADER, "2026-01-01 00:00:00,0,1"], "line 2: tokens must be from 1 to", id="no tokens"),
        pytest.param(
            [HEADER, f"2026-01-01 00:00:00,1,{10**22}"], "line 2: tokens must be from 1 to", id="no count"
        ),
        pytest.param(
            [HEADER, "2026-01-01 00:00:00,1," + "1" * 200_000], "line 2: field larger", id="no table"
        ),
        pytest.param([HEADER, "2026-01-01 00:00:00,5"], "line 2", id="half a row"),
    ],
)
def test_trace_that_cannot_be_read_says_where(lines: list[str], words: str) -> None:
    with pytest.raises(InvalidSpec, match=f"trace.*{words}"):
        parse_trace(lines, name="trace")


def test_trace_is_put_in_order_and_begins_with_its_first_request() -> None:
    lines = [HEADER, "2026-01-01 00:00:10.5000000,7,3", "2026-01-01 00:00:08.0000000,5,2"]
    workload = parse_trace(lines, name="trace")
    assert workload.requests.arrival.tolist() == [0.0, 2.5]
    assert workload.requests.prompt.tolist() == [5, 7]
    assert workload.seconds == 3.5


def test_objective_keeps_what_is_not_named() -> None:
    slo = parse_slo("tpot=40", ServiceLevelObjective())
    assert (slo.ttft_milliseconds, slo.tpot_milliseconds, slo.objective_percent) == (2000, 40, 95)


def test_line_of_replicas_is_as_wide_as_there_are_decisions() -> None:
    assert sparkline([3]) == "█"
    assert len(sparkline(list(range(1, 500)))) == 60
