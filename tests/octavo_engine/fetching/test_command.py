"""`octavo-engine` as Kubernetes runs it: exit codes, termination messages, JSON lines, quick help."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import engine_contract as contract
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.model_report import decode_model_report
from octavo_engine.cli.loading_progress import LoadingProgress
from octavo_engine.cli.main import build_parser
from octavo_engine.cli.serve_command import parse_bytes
from octavo_engine.cli.termination import EXIT_CODES, MAX_MESSAGE_BYTES, termination_message
from tests.octavo_engine.server.tiny_model import write_tiny_model
from tests.support.model_hub import HubStore, ModelHub

SMALL = ("--memory-limit", "4Gi", "--max-num-seqs", "2", "--max-num-batched-tokens", "16")
RUN = (sys.executable, "-c", "import sys; from octavo_engine.cli import main; sys.exit(main())")


def run_command(
    *arguments: str, termination_log: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    termination_log.touch()
    return subprocess.run(
        [*RUN, *arguments],
        env={**os.environ, "OCTAVO_TERMINATION_LOG": str(termination_log), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_fetch_command_fetches_and_fails_with_reason_and_code(tmp_path: Path) -> None:
    store, log = HubStore(tmp_path / "store"), tmp_path / "termination-log"
    files = {"config.json": b"{}", "model.safetensors": b"w"}
    commit = store.add_commit("org/model", files, message="one")
    with ModelHub(store) as server:
        order = ("fetch", "--uri", "hf://org/model", "--revision")
        here = ("--to", str(tmp_path / "model"))
        done = run_command(*order, commit, *here, termination_log=log, HF_ENDPOINT=server.endpoint)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert lines[-1]["message"].endswith("all 2 files verified")
        assert log.read_text() == ""
        there = ("--to", str(tmp_path / "other"))
        missing = run_command(*order, "0" * 40, *there, termination_log=log, HF_ENDPOINT=server.endpoint)
    assert missing.returncode == EXIT_CODES[contract.REASON_REVISION_NOT_FOUND]
    assert json.loads(log.read_text())["reason"] == contract.REASON_REVISION_NOT_FOUND
    assert json.loads(missing.stderr.splitlines()[-1])["reason"] == contract.REASON_REVISION_NOT_FOUND


def test_fetch_command_refuses_a_branch(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    arguments = ("fetch", "--uri", "hf://org/model", "--to", str(tmp_path), "--revision", "main")
    done = run_command(*arguments, termination_log=log)
    assert done.returncode == 2
    assert json.loads(log.read_text())["reason"] == contract.REASON_INVALID_ARGUMENTS


def test_serve_command_refuses_a_folder_without_model(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    done = run_command("serve", "--model", str(tmp_path), termination_log=log)
    assert done.returncode == 2
    assert "config.json" in json.loads(log.read_text())["message"]


def test_help_does_not_load_what_is_slow() -> None:
    code = (
        "import sys\n"
        "from octavo_engine.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'fastapi', 'huggingface_hub', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "serve" in done.stdout
    assert "fetch" in done.stdout


def test_serve_command_knows_every_flag_that_the_operator_renders(tmp_path: Path) -> None:
    arguments = ["serve"]
    values = {contract.FLAG_KV_CACHE_DTYPE: ["auto"], contract.FLAG_NO_PREFIX_CACHING: []}
    for flag in sorted(contract.RESERVED_FLAGS | {contract.FLAG_MAX_NUM_BATCHED_TOKENS}):
        arguments += [flag, *values.get(flag, ["16"])]
    parsed = build_parser().parse_args(arguments)
    assert parsed.enable_prefix_caching is False
    assert parsed.planned_kv_blocks == 16
    assert parsed.drain_accept_seconds == 16.0


def test_fetch_and_resolve_commands_know_every_flag_that_the_operator_renders() -> None:
    where = (contract.FLAG_FETCH_URI, "pvc://claim", contract.FLAG_SOURCE, contract.SOURCE_ROOT)
    token = (contract.FLAG_TOKEN_FILE, contract.TOKEN_FILE)
    fetch = (
        *("fetch", *where, *token, contract.FLAG_FETCH_REVISION, "sha256:1", contract.FLAG_FETCH_TO, "/m"),
        *(contract.FLAG_MANIFEST_DIGEST, "sha256:1", contract.FLAG_PROGRESS_PORT, "8001"),
    )
    assert build_parser().parse_args(fetch).progress_port == contract.FETCH_PROGRESS_PORT
    report = (contract.FLAG_REPORT, contract.TERMINATION_LOG)
    resolve = ("resolve", *where, *token, contract.FLAG_FETCH_REVISION, "main", *report)
    assert build_parser().parse_args(resolve).report == Path(contract.TERMINATION_LOG)


@pytest.mark.parametrize("flag", sorted(contract.RESERVED_FLAGS))
def test_shortened_flag_is_refused_so_that_a_reserved_one_cannot_slip_through(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["serve", contract.FLAG_MODEL, "DIR", f"{flag[:-1]}=1"])
    assert f"unrecognized arguments: {flag[:-1]}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("2Gi", 2**31), ("800Mi", 800 * 2**20), ("5", 5), ("1G", 10**9)])
def test_sizes_are_read_as_kubernetes_writes_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("character", ["a", "é", "👋", '"'])
def test_termination_message_fits_and_stays_json(character: str) -> None:
    content = termination_message("SomeReason", character * 10_000)
    assert len(content) <= MAX_MESSAGE_BYTES
    message = json.loads(content)
    assert message["reason"] == "SomeReason"
    assert len(message["message"]) > 500


def test_exit_codes_are_one_per_reason() -> None:
    reasons = {value for name, value in vars(contract).items() if name.startswith("REASON_")}
    assert reasons == set(EXIT_CODES)
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_resolve_and_warm_commands_report_as_json(tmp_path: Path) -> None:
    store, log = HubStore(tmp_path / "store"), tmp_path / "termination-log"
    source = write_tiny_model(tmp_path / "source")
    commit = store.add_commit("org/tiny", {path.name: path for path in source.iterdir()}, message="one")
    with ModelHub(store) as server:
        where = ("--uri", "hf://org/tiny", "--revision")
        resolved = run_command("resolve", *where, "main", termination_log=log, HF_ENDPOINT=server.endpoint)
        assert resolved.returncode == 0, resolved.stderr
        facts = json.loads(resolved.stdout)
        assert facts["commit"] == commit
        assert log.read_text() == ""
        order = ("warm", "--model", str(tmp_path / "model"), *SMALL, *where, commit)
        warmed = run_command(*order, termination_log=log, HF_ENDPOINT=server.endpoint)
    assert warmed.returncode == 0, warmed.stderr
    warm_facts = json.loads(warmed.stdout)
    assert warm_facts["manifest_digest"] == facts["manifest_digest"]
    assert warm_facts["revision"] == commit
    assert all(json.loads(line)["level"] == "info" for line in warmed.stderr.splitlines())


@pytest.mark.slow
def test_resolver_of_a_volume_reports_and_its_files_can_be_served(tmp_path: Path) -> None:
    """As two pods do it: one resolves, the other fetches by what the first one said, and serves."""
    log, folder = tmp_path / "termination-log", tmp_path / "models" / "one"
    write_tiny_model(tmp_path / "claim" / "tiny")
    source = ("--uri", "pvc://claim/tiny", "--source", str(tmp_path / "claim"))
    resolved = run_command("resolve", *source, "--report", str(log), termination_log=log)
    assert resolved.returncode == 0, resolved.stderr
    report = decode_model_report(log.read_text())
    assert report is not None
    assert isinstance(parse_architecture(report.config), ModelArchitecture)
    warm = ("warm", "--model", str(folder), *SMALL, *source, "--revision", report.commit)
    log.write_text("")
    warmed = run_command(*warm, termination_log=log)
    assert warmed.returncode == 0, warmed.stderr
    assert json.loads(warmed.stdout)["manifest_digest"] == report.manifest_digest
    (tmp_path / "claim" / "tiny" / "config.json").write_text("{}")
    refused = run_command(*warm, termination_log=log)
    assert refused.returncode == EXIT_CODES[contract.REASON_DIGEST_MISMATCH]
    assert json.loads(log.read_text())["reason"] == contract.REASON_DIGEST_MISMATCH


def test_resolver_that_fails_says_why_in_the_place_of_its_report(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    arguments = ("resolve", "--uri", "pvc://claim/none", "--source", str(tmp_path), "--report", str(log))
    done = run_command(*arguments, termination_log=log)
    assert done.returncode == EXIT_CODES[contract.REASON_SOURCE_UNREADABLE]
    assert json.loads(log.read_text())["reason"] == contract.REASON_SOURCE_UNREADABLE
    assert decode_model_report(log.read_text()) is None


def test_token_appears_nowhere_but_in_its_file(tmp_path: Path) -> None:
    store, log, token = HubStore(tmp_path / "store"), tmp_path / "termination-log", "hf_secretsecret"
    store.add_commit("org/model", {"config.json": b"{}", "model.safetensors": b"w"}, message="one")
    store.gate("org/model", token="hf_another")
    (tmp_path / "token").write_text(token)
    with ModelHub(store) as server:
        arguments = ("resolve", "--uri", "hf://org/model", "--token-file", str(tmp_path / "token"))
        done = run_command(*arguments, termination_log=log, HF_ENDPOINT=server.endpoint)
    assert done.returncode == EXIT_CODES[contract.REASON_GATED]
    assert token not in done.stdout + done.stderr + log.read_text()


def test_warm_command_refuses_a_folder_without_a_model(tmp_path: Path) -> None:
    done = run_command("warm", "--model", str(tmp_path), termination_log=tmp_path / "termination-log")
    assert done.returncode == 2
    assert "config.json" in done.stderr


def test_loading_progress_is_a_bar_at_a_terminal_and_quarters_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    with caplog.at_level("INFO"):
        for stream in (terminal, pipe):
            progress = LoadingProgress(stream)
            for done in range(1, 101):
                progress("loading weights", done / 100)
    assert terminal.getvalue().endswith(f"{'#' * 30} 100%  loading weights   \n")
    assert pipe.getvalue() == ""
    assert [record.message.split()[-1] for record in caplog.records] == ["1%", "25%", "50%", "75%", "100%"]
