"""The real engine behind the real server: a tiny random Llama with a trained tokenizer, over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from octavo.engine_contract import REASON_INSUFFICIENT_MEMORY
from octavo_engine.cli.termination import EXIT_CODES
from octavo_engine.requests import REFUSED_NEVER_FITS
from tests.octavo_engine.oracle import load_oracle, oracle_greedy
from tests.octavo_engine.server.running_server import (
    MODEL,
    RunningServer,
    eventually,
    leave_after,
    parse_event,
)
from tests.octavo_engine.server.served_process import COMMAND, processor_seconds, serve_process
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

NUM_BLOCKS = 24


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def server(model_dir: Path) -> Iterator[RunningServer]:
    with tiny_server(model_dir, num_kv_blocks=NUM_BLOCKS, max_num_batched_tokens=32) as running:
        yield running
        assert idle(running), "blocks or sequences were left behind"


def idle(server: RunningServer) -> bool:
    gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return all(server.metric(name) == 0 for name in gauges)


def token_ids(server: RunningServer, text: str) -> list[int]:
    ids: list[int] = server.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    return ids


def test_greedy_answer_is_the_oracles_streamed_and_whole(server: RunningServer, model_dir: Path) -> None:
    prompt = "Eine Katze und der Mond"
    expected = oracle_greedy(load_oracle(model_dir), token_ids(server, prompt), 20)
    backend = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    whole = server.complete(**body).json()
    streamed = "".join(event["choices"][0]["text"] for event in server.events(**body)[:-1])
    assert whole["choices"][0]["text"] == backend.decode(expected, skip_special_tokens=True) == streamed
    assert whole["usage"]["completion_tokens"] == 20


def test_chat_through_the_openai_client_streams_what_it_answers(server: RunningServer) -> None:
    client = server.openai()
    arguments: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hunde?"}],
        "max_completion_tokens": 24,
        "temperature": 0.8,
        "seed": 7,
    }
    whole = client.chat.completions.create(**arguments)
    chunks = list(client.chat.completions.create(**arguments, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 24


def test_seeded_choices_differ_and_repeat(server: RunningServer) -> None:
    body = {"max_tokens": 16, "temperature": 1.0, "n": 2, "seed": 42, "ignore_eos": True}
    first = [choice["text"] for choice in server.complete(**body).json()["choices"]]
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(server.complete, max_tokens=30, temperature=1.0, ignore_eos=True)
        second = [choice["text"] for choice in server.complete(**body).json()["choices"]]
        assert other.result().status_code == 200
    assert first == second
    assert first[0] != first[1]


def test_tiny_temperatures_are_greedy(server: RunningServer) -> None:
    texts = {
        server.complete(max_tokens=7, seed=1, temperature=temperature).json()["choices"][0]["text"]
        for temperature in (0, 1e-6, 1e-5, 1e-4)
    }
    assert len(texts) == 1


def test_logit_bias_and_logprobs_reach_the_sampler(server: RunningServer) -> None:
    token_id = token_ids(server, "M")[0]
    body = {"max_tokens": 3, "temperature": 0, "logit_bias": {str(token_id): 100}, "logprobs": 2}
    choice = server.complete(**body).json()["choices"][0]
    assert choice["text"] == "MMM"
    assert all(value <= 0 for value in choice["logprobs"]["token_logprobs"])
    assert all(len(top) >= 2 for top in choice["logprobs"]["top_logprobs"])


def test_preempted_answers_are_those_given_alone(server: RunningServer) -> None:
    bodies = [
        {"prompt": [10 + index] * (30 + 2 * index), "max_tokens": 64, "temperature": 0, "ignore_eos": True}
        for index in range(8)
    ]
    alone = [server.complete(**body).json()["choices"][0]["text"] for body in bodies]
    before = server.metric("vllm:num_preemptions_total")
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda body: server.events(**body), bodies))
    texts = ["".join(event["choices"][0]["text"] for event in events[:-1]) for events in together]
    assert texts == alone
    assert server.metric("vllm:num_preemptions_total") > before, "the pool was large enough: a void test"
    assert server.metric("octavo_recomputed_tokens_total") > 0


def test_request_that_never_fits_is_400_and_the_next_one_works(server: RunningServer) -> None:
    response = server.complete(prompt=[5] * 390, max_tokens=8)
    assert response.status_code == 400
    assert str(NUM_BLOCKS * 16) in response.json()["error"]["message"]
    assert response.json()["error"]["code"] in (REFUSED_NEVER_FITS, "context_length_exceeded")
    assert server.complete(max_tokens=8, ignore_eos=True).json()["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_frees_its_blocks(server: RunningServer, stream: bool) -> None:
    before = server.metric("octavo_requests_finished_total", reason="abort")
    leave_after(server, 0.15, max_tokens=300, stream=stream)
    eventually(lambda: idle(server), within=2)
    assert server.metric("octavo_requests_finished_total", reason="abort") == before + 1


def test_latency_histograms_count_every_request(server: RunningServer) -> None:
    names = ("vllm:request_queue_time_seconds", "vllm:time_to_first_token_seconds", "octavo_ttft_seconds")
    before = [server.metric(f"{name}_count") for name in names]
    server.complete(max_tokens=4, ignore_eos=True)
    assert [server.metric(f"{name}_count") for name in names] == [count + 1 for count in before]


def test_sigterm_under_load_cuts_no_stream_and_exits_0(model_dir: Path) -> None:
    num_streams, num_tokens = 6, 450
    began = threading.Barrier(num_streams + 1)
    options = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    body = {"model": MODEL, "prompt": "x", "max_tokens": num_tokens, **options}
    with (
        serve_process(model_dir, "--drain-accept-seconds", "2", "--shutdown-timeout", "60") as served,
        ThreadPoolExecutor(num_streams) as pool,
    ):
        process, client = served

        def read_stream(_: int) -> list[Any]:
            with client.stream("POST", "/v1/completions", json=body) as stream:
                lines = (line for line in stream.iter_lines() if line)
                events = [parse_event(next(lines))]
                began.wait(60)
                return events + [parse_event(line) for line in lines]

        streams = [pool.submit(read_stream, index) for index in range(num_streams)]
        began.wait(60)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: client.get("/ready").status_code == 503, within=1)
        assert client.get("/health").status_code == 200
        late = client.post("/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 2})
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        for stream in streams:
            *_, last, usage, done = stream.result()
            assert last["choices"][0]["finish_reason"] == "length"
            assert usage["usage"]["completion_tokens"] == num_tokens
            assert done == "[DONE]"
        assert process.wait(60) == 0


def test_ctrl_c_ends_an_idle_process_at_once(model_dir: Path) -> None:
    with serve_process(model_dir, "--drain-accept-seconds", "60") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_idle_process_takes_no_processor_time(model_dir: Path) -> None:
    with serve_process(model_dir) as (process, client):
        client.post(
            "/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 20}
        ).raise_for_status()
        time.sleep(0.5)
        before = processor_seconds(process.pid)
        time.sleep(3)
        assert processor_seconds(process.pid) - before < 0.09, "more than 3 % of a processor"


def test_folder_of_another_commit_is_not_served(model_dir: Path, tmp_path: Path) -> None:
    from octavo_engine.fetching.manifest import Record, build_manifest, write_record

    (tmp_path / "config.json").write_text("{}")
    write_record(tmp_path, Record(manifest=build_manifest("org/model", "1" * 40, []), stamps={}))
    arguments = ["serve", "--model", str(tmp_path), "--revision", "2" * 40]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds commit 1111" in done.stderr


def test_memory_that_cannot_hold_the_model_is_told_with_reason(model_dir: Path, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    arguments = ["serve", "--model", str(model_dir), "--port", "0", "--memory-limit", "1Mi"]
    environment = {**os.environ, "OCTAVO_TERMINATION_LOG": str(log)}
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == EXIT_CODES[REASON_INSUFFICIENT_MEMORY], done.stderr
    message = json.loads(log.read_text())
    assert message["reason"] == REASON_INSUFFICIENT_MEMORY
    assert "1.0 MiB" in message["message"] or "1 MiB" in message["message"]
