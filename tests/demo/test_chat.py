"""The demo's client against a server that answers as an engine would, well and badly."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.demo.chat import RequestFailed, over_loopback, post_json, read_metrics, stream_chat
from tests.demo.conversation import ask, metrics_table

METRICS = """\
# HELP vllm:num_requests_running Requests in the batch.
vllm:num_requests_running{model_name="m"} 1.0
vllm:kv_cache_usage_perc{model_name="m"} 0.25
octavo_requests_finished_total{reason="stop"} 2
octavo_requests_finished_total{reason="length"} 3
"""


def event(text: str, finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice], 'system_fingerprint': 'fp'})}\n\n"


class FakeEngine(BaseHTTPRequestHandler):
    """Streams "Paris." word by word; the model `cut` breaks off, the model `none` is unknown."""

    def do_GET(self) -> None:
        self._answer(200, METRICS)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] == "none":
            self._answer(404, '{"error": {"message": "no such model"}}')
            return
        ending = "" if body["model"] == "cut" else event("", "stop") + "data: [DONE]\n\n"
        self._answer(200, event("Pa") + event("ris.") + ending)

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_stream_gives_the_pieces_in_order(port) -> None:
    chunks = list(stream_chat(over_loopback(port), {"model": "m"}))
    assert [chunk.text for chunk in chunks] == ["Pa", "ris.", ""]
    assert chunks[-1].finish_reason == "stop"


def test_stream_that_breaks_off_is_a_failure(port) -> None:
    with pytest.raises(RequestFailed, match=r"before \[DONE\]"):
        list(stream_chat(over_loopback(port), {"model": "cut"}))


def test_error_answer_is_shown_with_its_words(port) -> None:
    with pytest.raises(RequestFailed, match=r"404.*no such model"):
        post_json(over_loopback(port), "/v1/chat/completions", {"model": "none"})


def test_connection_refused_is_a_failure_with_words(port) -> None:
    with pytest.raises(RequestFailed, match="GET /metrics: ConnectionRefused"):
        read_metrics(over_loopback(1))


def test_metrics_are_read_by_name_and_added_over_their_labels(port) -> None:
    samples = read_metrics(over_loopback(port))
    assert samples["vllm:kv_cache_usage_perc"] == 0.25
    assert samples["octavo_requests_finished_total"] == 5


def test_question_is_answered_on_the_terminal_with_its_fingerprint(port) -> None:
    out = io.StringIO()
    fingerprint, _ = ask(over_loopback(port), "m", out)
    assert out.getvalue() == "Paris.\n"
    assert fingerprint == "fp"


def test_metrics_table_shows_a_dash_where_an_engine_reports_nothing() -> None:
    (_, running, *_) = metrics_table({"vllm:num_requests_running": 1.0}, {})
    assert running.split() == ["vllm:num_requests_running", "1", "-"]
