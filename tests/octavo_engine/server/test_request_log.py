"""The line that each request leaves: what is in it, and what is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octavo_engine.cli.logs import JsonFormatter
from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import HELLO, eventually, leave_after

SECRET = "my grandmother's recipe"


Lines = Callable[[int], list[Any]]
"""Waits for so many lines (an answer is over for its client a moment before) and gives all."""


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    def logged() -> list[Any]:
        return [record for record in caplog.records if record.name == "octavo_engine.server.request_log"]

    def wait_for(count: int) -> list[Any]:
        eventually(lambda: len(logged()) >= count)
        assert len(logged()) == count
        return logged()

    with caplog.at_level(logging.INFO, logger="octavo_engine.server.request_log"):
        yield wait_for


@pytest.mark.parametrize("stream", [False, True])
def test_line_has_counts_and_end_of_an_answer(start_server: StartServer, lines: Lines, stream: bool) -> None:
    server = start_server()
    body = {"model": "m", "prompt": [5, 6, 7], "n": 2, "stream": stream}
    server.http.post("/v1/completions", json=body, headers={"x-request-id": "trace-7"})
    (line,) = lines(1)
    assert (line.request_id, line.method, line.path) == ("trace-7", "POST", "/v1/completions")
    assert (line.status, line.complete, line.model, line.choices) == (200, True, "m", 2)
    assert (line.prompt_tokens, line.cached_tokens, line.completion_tokens) == (3, 0, 8)
    assert line.finish_reasons == ["stop", "stop"]
    assert 0 < line.first_byte_seconds <= line.seconds < 5
    assert "POST /v1/completions 200, 3 + 8 tokens" in line.getMessage()


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_left_is_told_from_one_that_stayed(
    start_server: StartServer, lines: Lines, stream: bool
) -> None:
    server = start_server(ends=False, step_seconds=0.005)
    leave_after(server, 0.3, stream=stream)
    (line,) = lines(1)
    assert not (line.complete and line.status == 200)
    assert line.status == (200 if stream else 499)
    assert line.finish_reasons == [None]
    assert line.completion_tokens > 0


def test_refusals_have_a_line_and_probes_have_none(start_server: StartServer, lines: Lines) -> None:
    server = start_server()
    server.complete(temperature=-1)
    server.http.get("/v1/models/other")
    for path in ("/health", "/ready", "/metrics", "/version"):
        server.http.get(path)
    assert [(line.path, line.status) for line in lines(2)] == [
        ("/v1/completions", 400),
        ("/v1/models/other", 404),
    ]


def test_server_errors_are_warnings(start_server: StartServer, lines: Lines) -> None:
    server = start_server(fail_sequences=1)
    server.complete()
    server.complete()
    assert [line.levelname for line in lines(2)] == ["WARNING", "INFO"]


def test_no_text_is_logged_unless_asked_for(start_server: StartServer, lines: Lines) -> None:
    server = start_server(ends=False, ids=[71, 72, 73])
    answers = [
        server.complete(prompt=SECRET, max_tokens=3),
        server.chat(messages=[{"role": "user", "content": SECRET}], max_tokens=3),
        server.complete(prompt=SECRET, temperature=-1),
        server.complete(prompt=SECRET, nonsense=SECRET),
        server.complete(prompt={SECRET: SECRET}),
        server.chat(messages=[{"role": "user", "content": [{"type": SECRET}]}]),
        server.http.post("/tokenize", json={"prompt": SECRET}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 400, 400, 400, 200]
    text = answers[0].json()["choices"][0]["text"]
    said = " ".join(JsonFormatter().format(record) for record in lines(7))
    assert "recipe" not in said
    assert len(text) == 3 and text not in said


def test_prompts_are_logged_when_asked_for(start_server: StartServer, lines: Lines) -> None:
    server = start_server(options={"log_requests": "prompts"})
    server.complete(prompt=["first", "second"], n=2)
    (line,) = lines(1)
    assert line.prompts == ["first", "second"]
    server.chat(messages=HELLO)
    assert "user:a" in lines(2)[1].prompts[0]


def test_log_can_be_off(start_server: StartServer, lines: Lines) -> None:
    server = start_server(options={"log_requests": "off"})
    assert server.complete().status_code == 200
    server.interrupt()
    server.thread.join(10)
    assert lines(0) == []


def test_line_break_in_a_path_makes_no_line_of_its_own(start_server: StartServer, lines: Lines) -> None:
    server = start_server()
    server.http.get("/v1/models/a%0aERROR%20forged?x=%0a")
    (line,) = lines(1)
    assert line.path == "/v1/models/a%0aERROR%20forged"
    assert "\n" not in line.getMessage()
