"""How far a fetch is: on a terminal, in a log, and over HTTP, also of another process's work."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from octavo import engine_contract as contract
from octavo_engine.fetching import parallel
from octavo_engine.fetching import progress as progress_module
from octavo_engine.fetching.parallel import run_all
from octavo_engine.fetching.progress import Measure, Progress
from octavo_engine.fetching.progress_server import progress_served
from tests.octavo_engine.fetching.fetcher import FILES, REPO, start_fetch
from tests.support.model_hub import HubStore, ModelHub, Weather

HALF = Measure(bytes_done=512, bytes_total=1024, files_done=1, files_total=2, file="a")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ask(port: int, path: str = contract.FETCH_PROGRESS_PATH, host: str = "127.0.0.1") -> dict[str, object]:
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.load(answer)


def test_progress_is_a_bar_at_a_terminal() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.begin("fetched", lambda: HALF)
    progress.show()
    progress.finish()
    assert terminal.getvalue().startswith(f"\r{'#' * 15:<30}  50%  fetched 512 B of 1.0 KiB")
    assert terminal.getvalue().endswith("\n")


def test_progress_is_a_line_of_the_log_now_and_then_elsewhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "LOG_EVERY_SECONDS", 0.2)
    pipe = io.StringIO()
    progress = Progress(pipe)
    with caplog.at_level("INFO"):
        progress.begin("fetched", lambda: HALF)
        for _ in range(10):
            progress.show()
        assert caplog.records == []
        time.sleep(0.25)
        progress.show()
        progress.show()
        progress.finish()
    assert pipe.getvalue() == ""
    assert [(record.bytes_done, record.bytes_total) for record in caplog.records] == [(512, 1024)] * 2


def test_progress_is_served_while_the_block_runs(port: int) -> None:
    progress = Progress(io.StringIO())
    with progress_served(progress, port):
        assert ask(port) == {
            "bytes_done": 0,
            "bytes_total": 0,
            "files_done": 0,
            "files_total": 0,
            "file": "",
            "trouble": "",
        }
        progress.begin("fetched", lambda: HALF)
        assert ask(port)["bytes_done"] == 512
        if socket.has_dualstack_ipv6():
            assert ask(port, host="[::1]")["file"] == "a"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(port, "/metrics")
    with pytest.raises(OSError):
        ask(port)


def test_port_that_is_taken_is_no_reason_not_to_fetch(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        with progress_served(Progress(io.StringIO()), port):
            pass
    assert "progress is not served" in caplog.text


def test_client_that_says_nothing_does_not_hold_the_fetch(port: int) -> None:
    started = time.monotonic()
    with (
        progress_served(Progress(io.StringIO()), port),
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert ask(port)["file"] == ""
    assert time.monotonic() - started < 3


@pytest.mark.slow
def test_progress_grows_while_the_command_fetches_and_while_another_waits(
    store: HubStore, hub_server: ModelHub, tmp_path: Path, port: int
) -> None:
    commit = store.add_commit(REPO, {**FILES, "model.safetensors": b"w" * 24_000_000}, message="one")
    store.set_weather(Weather(bytes_per_second=2_000_000))  # slower than a process starts
    folder = tmp_path / "cache" / commit
    worker = start_fetch(hub_server, folder, commit)
    while not (folder / contract.MANIFEST_FILE).exists():
        time.sleep(0.02)
    waiter = start_fetch(hub_server, folder, commit, contract.FLAG_PROGRESS_PORT, str(port))
    seen: list[dict[str, object]] = []
    while waiter.poll() is None:
        try:
            seen.append(ask(port))
        except OSError:
            time.sleep(0.02)
    assert (worker.wait(30), waiter.returncode) == (0, 0)
    amounts = [answer["bytes_done"] for answer in seen if answer["bytes_total"]]
    assert len(set(amounts)) >= 2
    assert amounts == sorted(amounts)
    assert {answer["files_total"] for answer in seen} <= {0, 5}


# The threads -------------------------------------------------------------------------------------
def test_first_failure_stops_the_others_and_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "TICK_SECONDS", 0.01)
    stopped, ticks = threading.Event(), []

    def fails() -> None:
        time.sleep(0.05)
        raise LookupError("gone")

    def goes_on() -> None:
        assert stopped.wait(5)

    with pytest.raises(LookupError, match="gone"):
        run_all([fails, goes_on, goes_on], num_threads=3, tick=lambda: ticks.append(1), stop=stopped.set)
    assert stopped.is_set()
    assert ticks


def test_every_job_is_done_once_by_few_threads() -> None:
    done: list[int] = []
    names: set[str] = set()

    def job(number: int) -> None:
        names.add(threading.current_thread().name)
        done.append(number)

    jobs = [lambda number=number: job(number) for number in range(50)]
    run_all(jobs, num_threads=3, tick=lambda: None, stop=lambda: None)
    assert sorted(done) == list(range(50))
    assert len(names) <= 3


def test_no_jobs_are_done_at_once() -> None:
    run_all([], num_threads=4, tick=lambda: None, stop=lambda: None)
