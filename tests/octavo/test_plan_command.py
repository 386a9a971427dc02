"""`octavo plan` as a user runs it: sources, output, exit status, speed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.exit_codes import (
    BAD_INPUT,
    DOES_NOT_FIT,
    INTERRUPTED,
    OK,
    OUTPUT_CLOSED,
    UNAVAILABLE,
    UNSUPPORTED,
)
from octavo.cli.main import COMMAND_GROUP, main
from octavo.cli.plan_command import parse_size
from octavo.errors import InvalidSpec
from tests.octavo.kv_cases import CASES, config_of
from tests.support.model_hub import HubStore, ModelHub

LLAMA_8B = config_of(CASES["A02"])
REPOSITORY = "meta-llama/Meta-Llama-3.1-8B"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return path


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStore]:
    store = HubStore(tmp_path / "hub")
    with ModelHub(store) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield store


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["plan", *arguments, "--output", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_json_has_every_figure_when_the_model_fits(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = planned(capsys, "--config", str(config_file), "--accelerator", "H100-80GB")
    assert status == OK
    assert answer["supported"] is True
    assert answer["confidence"] == "high"
    assert answer["params_total"] == 8_030_261_248
    assert answer["weights_bytes"] == 16_060_522_496
    assert answer["attention_layers"] == 32
    assert answer["kv_bytes_per_token"] == 131_072
    assert answer["state_bytes_per_sequence"] == 0
    assert answer["sequence_bytes"]["4096"] == {
        "windowed": 536_870_912,
        "windowed_ideal": 536_870_912,
        "full": 536_870_912,
    }
    plan = answer["plan"]
    assert plan["fits"] is True
    assert plan["devices"] == 1
    assert plan["kv_blocks"] == plan["kv_budget_bytes"] // (16 * 131_072)
    assert plan["kv_tokens"] == 16 * plan["kv_blocks"]
    assert plan["full_length_sequences"] == plan["kv_tokens"] // 131_072
    assert plan["max_model_len_that_fits"] == 131_072
    assert plan["ways_out"] == []


def test_figures_are_per_device_when_tensor_parallelism_is_given(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = planned(
        capsys, "--config", str(config_file), "--tensor-parallel", "4", "--kv-cache-dtype", "fp8"
    )
    assert answer["kv_bytes_per_token"] == 131_072 // 8
    assert any("one CPU pod, uncut" in note for note in answer["plan"]["notes"])
    assert answer["weights_bytes"] == pytest.approx(16_060_522_496 / 4, rel=0.001)


def test_lengths_are_sized_when_they_are_given(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = planned(capsys, "--config", str(config_file), "--lengths", "17, 100")
    assert list(answer["sequence_bytes"]) == ["17", "100"]
    assert answer["sequence_bytes"]["17"]["windowed"] == 32 * 131_072
    assert answer["sequence_bytes"]["17"]["full"] == 17 * 131_072


def test_refusal_names_the_ways_out_when_it_does_not_fit(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = planned(
        capsys, "--config", str(config_file), "--accelerator", "T4-16GB", "--devices", "1"
    )
    assert status == DOES_NOT_FIT
    plan = answer["plan"]
    assert plan["fits"] is False
    assert plan["reason"] == "InsufficientMemory"
    assert plan["need_bytes"] > plan["have_bytes"]
    assert any("× T4-16GB" in way for way in plan["ways_out"])


def test_table_explains_itself(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(config_file), "--accelerator", "H100-80GB"]) == OK
    table = capsys.readouterr().out
    for words in (
        "8.03B parameters",
        "█ weights",
        "░ KV cache",
        "headroom",
        "limited by memory",
        "FP8 KV cache",
    ):
        assert words in table
    bar = next(line for line in table.splitlines() if line.startswith("│"))
    assert len(bar) == 66
    assert " " not in bar


def test_table_gives_the_ways_out_when_it_does_not_fit(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(config_file.parent), "--memory", "1Gi"]) == DOES_NOT_FIT
    table = capsys.readouterr().out
    assert "Does not fit (InsufficientMemory)" in table
    assert "memory of at least" in table


def test_unsupported_architecture_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "brand_new", "hidden_size": 12}))
    status, answer = planned(capsys, "--config", str(path))
    assert status == UNSUPPORTED
    assert answer["supported"] is False
    assert "brand_new" in answer["reason"]
    assert answer["known"] == ["hidden_size=12"]


def test_json_has_the_same_fields_when_the_architecture_is_unsupported(
    tmp_path: Path, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps({"model_type": "brand_new"}))
    _, answer = planned(capsys, "--config", str(path))
    assert set(PROMISED) <= set(answer)
    assert set(PROMISED_PLAN) <= set(answer["plan"])
    for arguments in ((), H100, (*H100, "--devices", "1", "--max-num-batched-tokens", "1000000")):
        _, answer = planned(capsys, "--config", str(config_file), *arguments)
        assert set(PROMISED) <= set(answer)
        assert set(PROMISED_PLAN) <= set(answer["plan"])


PROMISED = (
    "model_type", "supported", "confidence", "notes", "params_total", "weights_bytes", "attention_layers",
    "kv_bytes_per_token", "state_bytes_per_sequence", "sequence_bytes", "plan",
)  # fmt: skip
PROMISED_PLAN = (
    "fits", "devices", "kv_budget_bytes", "kv_blocks", "kv_tokens", "full_length_sequences",
    "max_model_len_that_fits", "reason", "ways_out",
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{", "is no JSON", id="cut off"),
        pytest.param("[]", "must hold a JSON object", id="a list"),
        pytest.param("{}", "model_type: missing", id="empty"),
        pytest.param(
            '{"model_type": "llama", "vocab_size": -1}', "vocab_size: must lie between", id="negative"
        ),
        pytest.param('{"model_type": "llama", "hidden_size": NaN}', "hidden_size: must be a whole", id="nan"),
        pytest.param("[" * 100_000, "is no JSON", id="too deep"),
    ],
)
def test_file_is_refused_by_what_is_wrong_with_it(
    content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    assert main(["plan", "--config", str(path)]) == BAD_INPUT
    assert words in capsys.readouterr().err


H100 = ("--accelerator", "H100-80GB")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--accelerator", "H900"], "--accelerator: 'H900' is not known", id="accelerator"),
        pytest.param([*H100, "--memory-percent", "101"], "--memory-percent: must lie between", id="percent"),
        pytest.param(
            [*H100, "--devices", "3", "--tensor-parallel", "2"], "--devices: 3 is no multiple", id="devices"
        ),
        pytest.param([*H100, "--devices", "64", "--tensor-parallel", "1"], "take at most 32", id="stages"),
        pytest.param(["--dtype", "int4"], "--dtype: 'int4' is none of", id="dtype"),
        pytest.param(["--kv-cache-dtype", "fp4"], "--kv-cache-dtype: 'fp4' is none of", id="kv dtype"),
        pytest.param(["--lengths", "a"], "--lengths: must be a whole number", id="lengths"),
        pytest.param(["--lengths", "16,99999999999"], "--lengths: must lie between", id="giant length"),
        pytest.param(["--memory", "4GB"], "--memory: '4GB' is no size", id="memory"),
        pytest.param(["--memory", "0"], "--memory: must be at least one byte", id="no memory"),
        pytest.param(["--max-model-len", str(2**40)], "--max-model-len: must lie between", id="context"),
        pytest.param(["--devices", "2"], "--devices: 2 is of accelerators", id="devices of a CPU"),
        pytest.param(["--memory-percent", "80"], "add --accelerator", id="percent of a CPU"),
        pytest.param([*H100, "--memory", "4Gi"], "--memory: 4Gi is of a CPU pod", id="memory of a GPU"),
        pytest.param([*H100, "--for-sequences", "2"], "is of a CPU pod", id="sequences of a GPU"),
        pytest.param(["--revision", "v1"], "--revision: v1 is of --model", id="revision of a file"),
    ],
)
def test_option_is_refused_by_its_name_when_its_value_cannot_be_right(
    arguments: list[str], words: str, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--config", str(config_file), *arguments]) == BAD_INPUT
    error = capsys.readouterr().err
    assert error.startswith("octavo plan: --")
    assert words in error


def test_count_is_refused_when_it_is_no_number(config_file: Path) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["plan", "--config", str(config_file), "--devices", "0"])
    assert exit_info.value.code == BAD_INPUT


def test_hub_is_read_at_the_revision(hub: HubStore, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.dumps(LLAMA_8B).encode()
    first = hub.add_commit(REPOSITORY, {"config.json": config}, message="first")
    hub.tag(REPOSITORY, "v1", first)
    other = {**(LLAMA_8B or {}), "num_hidden_layers": 16}
    second = hub.add_commit(REPOSITORY, {"config.json": json.dumps(other).encode()}, message="second")
    status, answer = planned(capsys, "--model", f"hf://{REPOSITORY}", "--revision", "v1")
    assert (status, answer["commit"], answer["attention_layers"]) == (OK, first, 32)
    _, answer = planned(capsys, "--model", f"hf://{REPOSITORY}")
    assert (answer["commit"], answer["attention_layers"]) == (second, 16)


def test_quantization_is_taken_from_its_own_file_when_the_hub_has_one(
    hub: HubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    modelopt = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}
    files = {
        "config.json": json.dumps(LLAMA_8B).encode(),
        "hf_quant_config.json": json.dumps(modelopt).encode(),
    }
    hub.add_commit(REPOSITORY, files, message="quantized")
    _, answer = planned(capsys, "--model", f"hf://{REPOSITORY}")
    assert answer["quantization"] == "modelopt"
    assert answer["weights_bytes"] < 0.4 * 16_060_522_496


@pytest.mark.parametrize(
    ("uri", "revision", "words"),
    [
        pytest.param("hf://nobody/nothing", "main", "no such repository", id="repository"),
        pytest.param(f"hf://{REPOSITORY}", "gone", "no branch, tag or commit 'gone'", id="revision"),
    ],
)
def test_hub_error_is_explained(
    uri: str, revision: str, words: str, hub: HubStore, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add_commit(REPOSITORY, {"config.json": b"{}"}, message="first")
    assert main(["plan", "--model", uri, "--revision", revision]) == UNAVAILABLE
    assert words in capsys.readouterr().err


def test_hub_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["plan", "--model", f"hf://{REPOSITORY}"]) == UNAVAILABLE
    assert "http://127.0.0.1:9: cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("uri", ["hf://", "hf://a/b/c", "s3://bucket/model", "hf://../etc", "hf://a/b?x=1"])
def test_uri_is_refused_when_it_names_no_repository(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", uri]) == BAD_INPUT
    assert "is no hf://organization/name" in capsys.readouterr().err


def test_command_answers_in_well_under_a_second_and_imports_nothing_heavy(config_file: Path) -> None:
    code = (
        "import sys; from octavo.cli.main import COMMAND_GROUP, main; "
        f"main(['plan', '--config', {str(config_file)!r}, '--accelerator', 'H100-80GB']); "
        "heavy = {'torch', 'transformers', 'kopf', 'pydantic', 'fastapi'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
    assert time.monotonic() - start < 5  # a loaded machine; alone it takes a quarter of a second


def test_command_ends_quietly_when_its_reader_has_enough(config_file: Path) -> None:
    octavo = f"{sys.executable} -u -m octavo.cli.main plan --config {config_file}"
    script = f"({octavo}; echo status $? >&2) | true"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == f"status {OUTPUT_CLOSED}\n"


def test_command_ends_quietly_when_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.cli.main.run", interrupt)
    assert main(["simulate"]) == INTERRUPTED
    assert capsys.readouterr().err == "\n"


def test_table_is_printed_when_the_terminal_knows_no_blocks(config_file: Path) -> None:
    command = [sys.executable, "-m", "octavo.cli.main", "plan", "--config", str(config_file)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONIOENCODING": "ascii"}
    )
    assert "? weights" in ended.stdout


def test_usage_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == BAD_INPUT
    assert "octavo plan" in capsys.readouterr().out


def test_command_is_refused_when_it_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == BAD_INPUT
    assert "no command 'fly'" in capsys.readouterr().err


def test_command_says_what_to_install_when_its_part_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint(name="status", value="octavo_operator.no_such_part:main", group=COMMAND_GROUP)
    monkeypatch.setattr("octavo.cli.main.installed_commands", lambda: {"status": entry})
    assert main(["status"]) == BAD_INPUT
    assert "pip install 'octavo[operator]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("512Mi", 512 << 20), ("1.5Gi", 3 << 29), ("2G", 2 * 10**9), ("7", 7)]
)
def test_size_is_read_as_kubernetes_writes_it(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_size_is_refused_when_its_unit_is_unknown() -> None:
    with pytest.raises(InvalidSpec, match="write it as 4Gi"):
        parse_size("4GiB")
