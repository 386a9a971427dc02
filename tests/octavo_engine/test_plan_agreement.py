"""What the log says when the engine's own measurement and the plan agree, and when they do not."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.planning import Infeasible, MemoryPlan
from octavo_engine.config import EngineConfig
from octavo_engine.plan_agreement import MeasuredMemory, compare, log_comparison, plan_for, report_agreement
from tests.octavo.test_planning import SMOLLM2
from tests.octavo_engine.oracle import load_engine, save_tiny_model
from tests.support.sample_model import sample_model_dir

ENGINE = Path(sys.executable).with_name("octavo-engine")
MIB = 1 << 20
LIMIT = 1400 * MIB
CONFIG = EngineConfig(model_dir=Path(), served_model_name="small")


def planned() -> MemoryPlan:
    plan = plan_for(CONFIG, SMOLLM2, limit_bytes=LIMIT)
    assert isinstance(plan, MemoryPlan)
    return plan


def measured(plan: MemoryPlan, **more: int) -> MeasuredMemory:
    """As planned, but for so many bytes more of some terms, which the KV cache then lacks."""
    values: dict[str, Any] = {
        "weights_bytes": plan.weights_bytes,
        "runtime_bytes": plan.runtime_bytes,
        "activation_bytes": plan.activation_bytes,
    }
    values = {name: value + more.get(name, 0) for name, value in values.items()}
    left = plan.kv_budget_bytes - sum(more.values())
    return MeasuredMemory(**values, block_bytes=plan.block_bytes, num_blocks=left // plan.block_bytes)


def test_nothing_is_off_when_the_measurement_is_the_plan() -> None:
    agreement = compare(planned(), measured(planned()))
    assert (agreement.deviation, agreement.terms_off) == (0.0, ())


@pytest.mark.parametrize("term", ["weights_bytes", "runtime_bytes", "activation_bytes"])
@pytest.mark.parametrize("sign", [1, -1])
def test_term_is_named_when_it_alone_is_off(term: str, sign: int) -> None:
    plan = planned()
    more = sign * plan.kv_budget_bytes // 25
    agreement = compare(plan, measured(plan, **{term: more}))
    assert agreement.deviation == pytest.approx(-sign * 0.04, abs=0.001)
    (off,) = agreement.terms_off
    assert off.measured - off.planned == more


def test_nothing_is_off_when_terms_make_up_for_each_other() -> None:
    plan = planned()
    share = plan.kv_budget_bytes // 10
    assert compare(plan, measured(plan, runtime_bytes=share, activation_bytes=-share)).terms_off == ()


def test_largest_term_is_named_when_only_the_sum_is_off() -> None:
    plan = planned()
    share = plan.kv_budget_bytes // 100
    agreement = compare(
        plan, measured(plan, weights_bytes=share, runtime_bytes=2 * share, activation_bytes=share)
    )
    assert [term.name for term in agreement.terms_off] == ["runtime"]


def test_block_is_named_when_its_size_is_off() -> None:
    plan = planned()
    wide = replace(measured(plan), block_bytes=2 * plan.block_bytes, num_blocks=plan.kv_blocks // 2)
    assert [term.name for term in compare(plan, wide).terms_off] == ["one KV block"]


def test_log_has_one_line_when_all_is_as_planned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_comparison(planned(), measured(planned()))
    (record,) = caplog.records
    assert (record.levelname, record.message.endswith("(+0.0 %): as planned")) == ("INFO", True)


def test_log_warns_with_both_numbers_when_a_term_is_off(caplog: pytest.LogCaptureFixture) -> None:
    report_agreement(CONFIG, SMOLLM2, measured(planned(), runtime_bytes=200 * MIB), limit_bytes=LIMIT)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.endswith("off: runtime 572 MiB, planned 372 MiB")


def test_log_warns_when_the_plan_knows_no_room_at_all(caplog: pytest.LogCaptureFixture) -> None:
    report_agreement(CONFIG, SMOLLM2, measured(planned()), limit_bytes=300 * MIB)
    assert "but the plan: 257 MiB of weights" in caplog.text


@pytest.mark.parametrize("raw", [{}, {"model_type": "brand_new"}, {"model_type": "llama", "hidden_size": -1}])
def test_log_is_silent_when_there_is_no_plan(raw: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report_agreement(CONFIG, raw, measured(planned()), limit_bytes=LIMIT)
    report_agreement(CONFIG, SMOLLM2, None, limit_bytes=LIMIT)
    assert caplog.records == []


def test_plan_is_refused_when_the_context_asked_for_does_not_fit() -> None:
    config = EngineConfig(model_dir=Path(), served_model_name="small", max_model_len=8192)
    assert isinstance(plan_for(config, SMOLLM2, limit_bytes=800 * MIB), Infeasible)


def test_engine_takes_what_was_planned_when_the_checkpoint_is_stored_in_float32(tmp_path: Path) -> None:
    model_dir = save_tiny_model(tmp_path)
    raw = json.loads((model_dir / "config.json").read_text())
    assert raw["dtype"] == "float32"
    facts = load_engine(model_dir, dtype="auto", num_kv_blocks=None, memory_limit_bytes=4 << 30).facts
    plan = plan_for(replace(CONFIG, max_num_batched_tokens=64), raw, limit_bytes=4 << 30)
    assert isinstance(plan, MemoryPlan)
    assert (facts.dtype, facts.block_bytes) == ("bfloat16", plan.block_bytes)
    assert facts.weights_bytes == plan.weights_bytes


def first_log_line(command: list[str], words: str) -> dict[str, Any]:
    """Start a server, wait for a line of its log, and end it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            line = next((line for line in server.stdout if words in line), "{}")
        finally:
            server.kill()
    entry: dict[str, Any] = json.loads(line)
    return entry


@pytest.mark.model
@pytest.mark.parametrize("limit", ["1500Mi", "4Gi"])
def test_blocks_of_the_sample_model_are_within_three_per_cent_of_the_plan(limit: str) -> None:
    serve = [str(ENGINE), "serve", "--model", str(sample_model_dir())]
    options = ["--memory-limit", limit, "--host", "127.0.0.1", "--port", "0", "--log-format", "json"]
    entry = first_log_line([*serve, *options], "measured room for")
    measured, planned = map(int, re.findall(r"(\d+) KV blocks, planned (\d+)", entry["message"])[0])
    assert entry["level"] == "info", entry["message"]
    assert measured == pytest.approx(planned, rel=0.03)
