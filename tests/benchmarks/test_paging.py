"""The law of paging on a real trace, and that the committed result is what the command makes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paging.__main__ import main
from benchmarks.paging.contiguous_run import run_contiguous
from benchmarks.paging.paged_run import PagedMeasurement, run_paged
from benchmarks.paging.report import (
    CONDITIONS,
    FULL,
    FULL_AND_WINDOW,
    SCENARIOS,
    Report,
    Row,
    Scenario,
    build_report,
    measure,
)
from benchmarks.paging.result_page import BEGIN, FIGURE, PAGE, as_json, read_result, with_tables
from benchmarks.paging.tables import as_tables
from benchmarks.paging.trace import COMMITTED_TRACE, TracedRequest, read_trace
from octavo.errors import InvalidSpec
from octavo_engine.scheduling.kv_groups import KVCacheGroup

RENEW = "the committed result is of another scheduler: renew it with python -m benchmarks.paging --write"
REPEATED = Scenario(pool_slots=32_768, block_size=64)


def paged(
    num_requests: int,
    *,
    pool_slots: int,
    block_size: int,
    groups: tuple[KVCacheGroup, ...] = FULL,
    budget: int = CONDITIONS.max_num_batched_tokens,
) -> PagedMeasurement:
    return run_paged(
        read_trace(COMMITTED_TRACE, limit=num_requests),
        conditions=replace(CONDITIONS, max_num_batched_tokens=budget),
        groups=groups,
        pool_slots=pool_slots,
        block_size=block_size,
        on_finished=lambda _: None,
    )


@pytest.mark.parametrize(
    ("pool_slots", "block_size", "groups", "budget"),
    [
        pytest.param(32_768, 8, FULL, 2048, id="blocks of 8"),
        pytest.param(32_768, 16, FULL, 2048, id="blocks of 16"),
        pytest.param(32_768, 128, FULL, 2048, id="blocks of 128"),
        pytest.param(8_192, 16, FULL, 2048, id="pool of the longest sequence alone"),
        pytest.param(32_768, 16, FULL, 100, id="small chunks"),
        pytest.param(32_768, 16, FULL_AND_WINDOW, 2048, id="a sliding group beside a full one"),
    ],
)
def test_sequence_wastes_less_than_a_block_and_half_of_one_in_the_mean(
    pool_slots: int, block_size: int, groups: tuple[KVCacheGroup, ...], budget: int
) -> None:
    """The longest request of these has 4176 tokens, so that every pool holds it."""
    run = paged(150, pool_slots=pool_slots, block_size=block_size, groups=groups, budget=budget)
    assert run.max_unused_slots <= block_size - 1
    assert run.mean_unused_slots == pytest.approx((block_size - 1) / 2, rel=0.1)


def test_more_sequences_stay_admitted_than_with_contiguous_reservation() -> None:
    """Even than with a reservation that knows where each output will end."""
    row = measure(read_trace(COMMITTED_TRACE, limit=300), Scenario(pool_slots=32_768, block_size=16), print)
    admitted = {name: use.mean_admitted for name, use in row.contiguous.items()}
    assert row.paged.memory.mean_admitted > admitted["true_length"] > admitted["prompt_and_max_tokens"]
    assert row.paged.memory.mean_admitted > 5 * admitted["max_model_len"]


def test_every_output_is_as_long_as_in_the_trace_though_sequences_are_preempted() -> None:
    requests = read_trace(COMMITTED_TRACE, limit=150)
    run = paged(150, pool_slots=8_192, block_size=16)
    assert run.preemptions > 0
    assert run.generated_tokens == sum(request.num_output_tokens for request in requests)


def test_contiguous_run_admits_what_its_reservations_allow() -> None:
    """Two of 40 fit in 100; each computes 10 + 3 tokens, one of them on the step after its prompt."""
    request = TracedRequest(num_prompt_tokens=10, num_output_tokens=4)
    use = run_contiguous(
        [request] * 4,
        reserved_tokens=lambda _: 40,
        groups=FULL,
        num_slots=100,
        max_num_batched_tokens=1000,
    )
    assert (use.num_steps, use.max_admitted, use.mean_admitted) == (8, 2, 2.0)
    assert use.filled_ratio == (20 + 22 + 24 + 26) / 4 / 100


# The committed result ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> Report:
    return read_result()


def row_of(report: Report, scenario: Scenario) -> Row:
    return next(
        row
        for row in report.rows
        if (row.pool_slots, row.block_size, row.layers)
        == (scenario.pool_slots, scenario.block_size, scenario.layers)
    )


@pytest.mark.slow
def test_committed_row_is_what_a_repetition_measures(committed: Report) -> None:
    repeated = build_report(
        read_trace(COMMITTED_TRACE),
        trace_name=COMMITTED_TRACE.name,
        date=committed.date,
        scenarios=[REPEATED],
    )
    assert repeated.rows[0] == row_of(committed, REPEATED), RENEW
    assert replace(repeated, rows=committed.rows) == committed, RENEW


def test_committed_result_covers_every_scenario_and_keeps_the_law(committed: Report) -> None:
    assert len(committed.rows) == len(SCENARIOS)
    for scenario in SCENARIOS:
        run = row_of(committed, scenario).paged
        assert run.max_unused_slots <= scenario.block_size - 1
        assert run.mean_unused_slots == pytest.approx((scenario.block_size - 1) / 2, rel=0.1)


def test_tables_of_the_page_are_made_from_the_committed_result(committed: Report) -> None:
    page = PAGE.read_text()
    assert page == with_tables(page, committed)
    assert as_tables(committed) in page
    assert FIGURE.read_bytes().startswith(b"\x89PNG")


def test_figures_in_the_text_of_the_page_are_those_of_its_tables(committed: Report) -> None:
    text = PAGE.read_text()
    row = row_of(committed, Scenario(pool_slots=65_536, block_size=16))
    assert f"{row.paged.memory.mean_admitted:.0f} sequences" in text
    ratio = row.paged.memory.mean_admitted / row.contiguous["max_model_len"].mean_admitted
    assert f"{ratio:.1f} times" in text


def test_page_shows_what_explain_blocks_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from octavo_engine.cli.main import main as engine_main

    assert engine_main(["explain-blocks", "--lengths", "35,17,64"]) == 0
    assert capsys.readouterr().out in PAGE.read_text()


def test_page_without_its_marks_is_not_written_over(committed: Report) -> None:
    with pytest.raises(AssertionError, match="lost its marks"):
        with_tables(PAGE.read_text().replace(BEGIN, ""), committed)


# The command ------------------------------------------------------------------------------------


def test_command_prints_json_draws_and_shows_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "paging.png"
    assert main(["--requests", "3", "--output", "json", "--plot", str(figure)]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert len(report["rows"]) == len(SCENARIOS)
    assert all(report[name] for name in ("date", "workload", "conditions", "retest"))
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "requests/s" in printed.err


def test_command_prints_the_tables_of_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Workload: 3 requests of azure_llm_2023_conv_first_1000.csv")
    assert printed.count("| 65536 | 16 | full + window 512 |") == 2


def test_two_runs_measure_the_same() -> None:
    requests = read_trace(COMMITTED_TRACE, limit=20)
    first, second = (
        build_report(requests, trace_name="trace", date="", scenarios=[REPEATED]) for _ in range(2)
    )
    assert as_json(first) == as_json(second)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "no such file", id="no file"),
        pytest.param("a,b\n1,2\n", "no column ContextTokens or GeneratedTokens", id="other columns"),
        pytest.param("ContextTokens,GeneratedTokens\n", "holds no request", id="no rows"),
        pytest.param("ContextTokens,GeneratedTokens\n5,0\n", "line 2.*'0'.*from 1 up", id="no output"),
        pytest.param("ContextTokens,GeneratedTokens\n5\n", "line 2.*None.*from 1 up", id="half a row"),
        pytest.param(
            "ContextTokens,GeneratedTokens\n8000,900\n", "request 1 has 8000 \\+ 900", id="too long"
        ),
    ],
)
def test_trace_that_cannot_be_run_is_refused_with_its_place(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidSpec, match=f"--trace.*{words}"):
        build_report(read_trace(path), trace_name=path.name, date="")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--requests", "0"], "--requests: '0'.*from 1 up", id="no requests"),
        pytest.param(["--plot", "out.pdf"], "--plot: 'out.pdf'.*ends in .png", id="not a PNG"),
        pytest.param(["--write", "--requests", "5"], "--write: .*leave out", id="part of the trace written"),
    ],
)
def test_command_refuses_a_wrong_flag(
    capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(flags)
    assert stopped.value.code == 2
    assert re.search(words, capsys.readouterr().err)


def test_command_ends_with_2_for_a_missing_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", "/nowhere.csv"]) == 2
    assert "--trace /nowhere.csv: no such file" in capsys.readouterr().err
