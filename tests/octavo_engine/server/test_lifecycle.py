"""Clients that leave, engines that die, servers that end: nobody is left waiting, nothing is left running."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest

from octavo_engine.server.lifecycle import DrainTimes
from octavo_engine.server.process import AddressInUse, Interruption, bind, serve
from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import (
    ENDLESS,
    MODEL,
    eventually,
    leave_after,
    parse_event,
    serve_options,
    write_text_files,
)
from tests.octavo_engine.text.small_tokenizers import byte_level_tokenizer


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_ends_its_sequences(start_server: StartServer, stream: bool) -> None:
    server = start_server(ends=False, step_seconds=0.005)
    leave_after(server, 0.3, stream=stream, n=2)
    eventually(lambda: not server.engine.has_work(), within=2)
    assert 0 < server.engine.num_generated < 1000
    eventually(lambda: server.metric("vllm:num_requests_running") == 0, within=2)
    assert server.metric("octavo_requests_finished_total", reason="abort") == 2
    assert server.metric("vllm:request_success_total", finished_reason="length") == 0
    assert server.metric("octavo_kv_blocks", state="referenced") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_while_waiting_is_taken_off_the_queue(
    start_server: StartServer, stream: bool
) -> None:
    server = start_server(ends=False, step_seconds=0.01, facts={"max_num_seqs": 1})
    with server.http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}):
        leave_after(server, 0.2, stream=stream)
        eventually(lambda: len(server.engine.aborted) == 1, within=2)
        assert server.metric("vllm:num_requests_running") == 1
        assert server.metric("vllm:num_requests_waiting") == 0


def test_client_that_leaves_before_the_engine_answers_leaves_nothing(start_server: StartServer) -> None:
    server = start_server(ends=False)
    server.engine.may_step.clear()
    leave_after(server, 0.1)
    leave_after(server, 0.1)
    server.engine.may_step.set()
    eventually(lambda: len(server.engine.aborted) == 2 and not server.engine.has_work(), within=2)


def test_metrics_are_fresh_after_all_clients_left_at_once(start_server: StartServer) -> None:
    server = start_server(ends=False, step_seconds=0.005)
    threads = [threading.Thread(target=leave_after, args=(server, 0.4)) for _ in range(20)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.metric("vllm:num_requests_waiting") > 0)
    for thread in threads:
        thread.join()
    eventually(
        lambda: all(
            server.metric(name) == 0
            for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        ),
        within=3,
    )


def test_dead_engine_ends_streams_with_an_error_and_fails_health(start_server: StartServer) -> None:
    server = start_server(ends=False, fail_at_step=4)
    events = server.events(max_tokens=50)
    assert events[-1] == "[DONE]"
    assert "engine has failed" in events[-2]["error"]["message"]
    assert not any(choice["finish_reason"] for event in events[:-2] for choice in event["choices"])
    assert server.http.get("/health").status_code == 503
    assert server.http.get("/ready").status_code == 503
    for response in (server.complete(), server.complete(stream=True)):
        assert response.status_code == 503
        assert response.json()["error"]["message"]
    assert server.metric("octavo_requests_finished_total", reason="error") == 1


def test_dead_engine_fails_a_waiting_answer_for_the_openai_client(start_server: StartServer) -> None:
    server = start_server(ends=False, fail_at_step=4)
    with pytest.raises(openai.InternalServerError, match="engine has failed"):
        server.openai().completions.create(model=MODEL, prompt=["a", "b"], max_tokens=50)
    with pytest.raises(openai.InternalServerError):
        server.openai().completions.create(model=MODEL, prompt="a")


def test_health_turns_red_when_a_step_hangs_and_an_idle_engine_stays_green(
    start_server: StartServer,
) -> None:
    server = start_server(options={"stall_seconds": 0.3})
    time.sleep(0.6)
    assert server.http.get("/health").status_code == 200
    server.engine.may_step.clear()
    answer: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answer.append(server.complete()))
    waiting.start()
    eventually(lambda: server.http.get("/health").status_code == 503, within=2)
    server.engine.may_step.set()
    waiting.join()
    assert answer[0].status_code == 200
    eventually(lambda: server.http.get("/health").status_code == 200)


def test_idle_server_takes_no_processor_time(start_server: StartServer) -> None:
    server = start_server()
    server.complete()
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.1


def test_drain_hands_off_then_refuses_and_finishes_what_runs(start_server: StartServer) -> None:
    drain = DrainTimes(accept_seconds=0.6, shutdown_seconds=10)
    server = start_server(ends=False, step_seconds=0.01, options={"drain": drain})
    body = {**ENDLESS, "max_tokens": 200, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as stream:
        server.interrupt()
        eventually(lambda: server.http.get("/ready").status_code == 503, within=0.5)
        handed_off = server.complete(max_tokens=2)
        assert handed_off.status_code == 200
        assert handed_off.headers["connection"] == "close"
        assert server.metric("octavo_draining") == 1
        eventually(lambda: server.complete(max_tokens=2).status_code == 503, within=2)
        refused = server.complete(max_tokens=2)
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "service_unavailable"
        assert server.http.get("/health").status_code == 200
        events = [parse_event(line) for line in stream.iter_lines() if line]
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    server.thread.join(5)
    assert not server.thread.is_alive()


def test_drain_ends_what_takes_too_long_with_an_error_event(start_server: StartServer) -> None:
    drain = DrainTimes(accept_seconds=0, shutdown_seconds=0.3)
    server = start_server(ends=False, step_seconds=0.05, options={"drain": drain})
    with server.http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as stream:
        server.interrupt()
        events = [parse_event(line) for line in stream.iter_lines() if line]
    assert "shutting down" in events[-2]["error"]["message"]
    assert events[-1] == "[DONE]"
    server.thread.join(5)
    assert not server.thread.is_alive()


def test_second_interruption_hurries(start_server: StartServer) -> None:
    drain = DrainTimes(accept_seconds=60, shutdown_seconds=60)
    server = start_server(options={"drain": drain})
    server.interrupt()
    eventually(lambda: server.http.get("/ready").status_code == 503)
    server.interrupt()
    server.thread.join(5)
    assert not server.thread.is_alive()


def test_interruption_while_loading_ends_at_once(tmp_path: Path) -> None:
    write_text_files(tmp_path, byte_level_tokenizer())
    never = threading.Event()

    async def main() -> None:
        interruption = Interruption()
        asyncio.get_running_loop().call_later(0.2, interruption.interrupt, signal.SIGTERM)
        options = serve_options(tmp_path, drain=DrainTimes(accept_seconds=60, shutdown_seconds=60))
        await serve(options, lambda: never.wait() and None, bind("127.0.0.1", 0), interruption)  # type: ignore

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 5
    never.set()


def test_one_failed_sequence_is_500_and_the_engine_goes_on(start_server: StartServer) -> None:
    server = start_server(fail_sequences=1)
    response = server.complete()
    assert response.status_code == 500
    assert "not finite" in response.json()["error"]["message"]
    assert server.complete().status_code == 200
    assert server.http.get("/health").status_code == 200


def test_port_that_is_taken_is_told_by_flag() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(AddressInUse, match="--port"):
            bind("127.0.0.1", taken.getsockname()[1])
