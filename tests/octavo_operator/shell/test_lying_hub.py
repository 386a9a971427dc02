"""A hub, or something in its place, that answers with anything but what was asked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

import pytest

from octavo_operator.decide.target import Refusal
from tests.octavo_operator.shell.asking import Asker

REPO = "organization/model"


class Liar(BaseHTTPRequestHandler):
    """Answers every question with what the test says."""

    server: LiarServer

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        with contextlib.suppress(OSError):
            for part in self.server.parts():
                self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


class LiarServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int, parts: Callable[[], Iterator[bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Liar)
        self.status = status
        self.parts = parts
        threading.Thread(target=self.serve_forever, daemon=True).start()


def ask_liar(status: int, parts: Callable[[], Iterator[bytes]]) -> tuple[str | Refusal, str | Refusal]:
    """What becomes of some words, and of config.json."""
    server = LiarServer(status, parts)
    hub = Asker(f"http://127.0.0.1:{server.server_port}")
    answers = hub.resolve(REPO, "main"), hub.read_config(REPO, "0" * 40)
    server.shutdown()
    server.server_close()
    return answers


@pytest.mark.parametrize(
    ("status", "text", "config_reason"),
    [
        pytest.param(200, "<html>sign in</html>", "InvalidConfig", id="a sign-in page"),
        pytest.param(200, "", "InvalidConfig", id="nothing"),
        pytest.param(200, "[]", "InvalidConfig", id="a list"),
        pytest.param(200, "[" * 100_000, "InvalidConfig", id="deep"),
        pytest.param(429, "slow down", "HubUnavailable", id="too many requests"),
        pytest.param(500, '{"error": 5}', "HubUnavailable", id="broken"),
        pytest.param(404, "<html>", "HubUnavailable", id="another server"),
        pytest.param(302, "", "InvalidConfig", id="elsewhere without an address"),
    ],
)
def test_hub_that_talks_nonsense_is_asked_again(status: int, text: str, config_reason: str) -> None:
    resolved, config = ask_liar(status, lambda: iter([text.encode()]))
    assert isinstance(resolved, Refusal)
    assert isinstance(config, Refusal)
    assert (resolved.reason, resolved.lasting, resolved.at_hub) == ("HubUnavailable", False, True)
    assert (config.reason, config.at_hub) == (config_reason, True)


@pytest.mark.parametrize("sha", ["null", "5", '"main"', '"../../etc"', f'"{"F" * 40}"'])
def test_hub_that_names_no_commit_resolves_nothing(sha: str) -> None:
    resolved, _ = ask_liar(200, lambda: iter([f'{{"sha": {sha}}}'.encode()]))
    assert isinstance(resolved, Refusal)
    assert (resolved.reason, resolved.lasting) == ("HubUnavailable", False)


def test_hub_that_never_ends_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ask_liar(200, lambda: repeat(b"x" * 65536)):
        assert isinstance(answer, Refusal)
        assert "longer than" in answer.message

    def trickle() -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b"x"

    monkeypatch.setattr("octavo_operator.shell.hub.DEADLINE_SECONDS", 0.3)
    for answer in ask_liar(200, trickle):
        assert isinstance(answer, Refusal)
        assert "took longer" in answer.message
