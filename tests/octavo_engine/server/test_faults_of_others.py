"""Faults that other servers had, asked of ours over HTTP with the real engine behind it.

What is told elsewhere (refusals, texts, lifecycle) is not repeated here.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from octavo import engine_contract as contract
from octavo_engine.memory import MIB, resident_bytes
from tests.octavo_engine.server.running_server import (
    ENDLESS,
    MODEL,
    RunningServer,
    eventually,
    parse_event,
)
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

PROMPT = list(range(50, 90))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with tiny_server(folder, num_kv_blocks=64) as running:
        yield running


def text_of(server: RunningServer, **body: Any) -> str:
    return str(server.complete(**body).json()["choices"][0]["text"])


def cached_tokens(server: RunningServer, **body: Any) -> int:
    answer = server.complete(prompt=PROMPT, max_tokens=4, **body).json()
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


# Cache -----------------------------------------------------------------------------------------


def test_tenants_do_not_find_each_others_prompts(folder: Path) -> None:
    with tiny_server(folder) as server:
        hits = [cached_tokens(server, cache_salt=salt) for salt in ("A", "B", "A", "", "B", "", None)]
        without = cached_tokens(server)
    # No salt, null and the empty one are one and the same tenant, who has nothing of A's.
    assert hits == [0, 0, 32, 0, 32, 32, 32]
    assert without == 32


@pytest.mark.parametrize("length", [16, 32, 48])
def test_prompt_that_is_cached_whole_is_answered_as_before(server: RunningServer, length: int) -> None:
    body = {"prompt": [100 + length] * length, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    answers = [server.complete(**body).json() for _ in range(3)]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached == [0, length - 16, length - 16]


# Preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caching", "sampling"),
    [
        pytest.param(True, {"temperature": 1.0}, id="cached, seeded"),
        pytest.param(False, {"temperature": 0}, id="uncached, greedy"),
        pytest.param(True, {"temperature": 0}, id="cached, greedy", marks=pytest.mark.slow),
        pytest.param(False, {"temperature": 1.0}, id="uncached, seeded", marks=pytest.mark.slow),
    ],
)
def test_preempted_stream_goes_on_where_it_was(folder: Path, caching: bool, sampling: dict[str, Any]) -> None:
    bodies = [
        {
            "prompt": [10 + index] * (30 + 2 * index),
            "max_tokens": 64,
            "ignore_eos": True,
            "seed": index,
            "logprobs": 0,
            **sampling,
        }
        for index in range(8)
    ]

    def stream(server: RunningServer, body: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        *events, last, done = server.events(**body, stream_options={"include_usage": True})
        assert done == "[DONE]"
        tokens = [token for event in events for token in event["choices"][0]["logprobs"]["tokens"]]
        return tokens, last["usage"]

    settings: dict[str, Any] = {"enable_prefix_caching": caching, "max_num_seqs": 8}
    with tiny_server(folder, num_kv_blocks=400, **settings) as large:
        alone = [stream(large, body)[0] for body in bodies]
    with tiny_server(folder, num_kv_blocks=24, **settings) as small:
        for _ in range(32):  # it comes to expect short answers, and takes on more than will fit
            small.complete(prompt=[5], max_tokens=1)
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda body: stream(small, body), bodies))
        assert small.metric(contract.NUM_PREEMPTIONS) > 0, "the pool was large enough: void"
    assert [tokens for tokens, _ in together] == alone
    for body, (tokens, usage) in zip(bodies, together, strict=True):
        assert len(tokens) == usage["completion_tokens"] == 64
        assert usage["prompt_tokens"] == len(body["prompt"])


# Requests --------------------------------------------------------------------------------------


def test_same_id_twice_at_once_harms_nobody(server: RunningServer) -> None:
    def ask(_: int) -> int:
        body = {"model": MODEL, "prompt": "a", "max_tokens": 100, "min_tokens": 100, "temperature": 0}
        answer = server.http.post("/v1/completions", json=body, headers={"X-Request-Id": "id"})
        return int(answer.json()["usage"]["completion_tokens"])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [100, 100]
    assert ask(3) == 100
    assert server.metric(contract.NUM_REQUESTS_RUNNING) == server.metric(contract.NUM_REQUESTS_WAITING) == 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"n": 5_000_000}, id="choices"),
        pytest.param({"logprobs": 10**9}, id="alternatives"),
        pytest.param({"prompt": [2**31 - 1]}, id="id"),
        pytest.param({"prompt": [10**400]}, id="id of four hundred digits"),
        pytest.param({"prompt": [[5]] * 200_000}, id="prompts"),
        pytest.param({"temperature": 1e308, "top_p": -1.0}, id="floats"),
        pytest.param({"stop": ["x"] * 500_000}, id="stop strings"),
        pytest.param({"logit_bias": {str(index): 1 for index in range(200_000)}}, id="biases"),
        pytest.param({"seed": 10**400}, id="seed"),
        pytest.param({"max_tokens": 10**18}, id="tokens"),
        pytest.param({"min_tokens": 10**18}, id="least tokens"),
    ],
)
def test_number_without_bound_is_refused_fast_and_takes_no_memory(
    server: RunningServer, body: dict[str, Any]
) -> None:
    server.complete(max_tokens=1)
    before, started = resident_bytes(), time.process_time()
    assert server.complete(**body).status_code == 400
    assert time.process_time() - started < 1, "of the processor, for client and server together"
    assert resident_bytes() - before < 50 * MIB
    assert server.http.get("/health").status_code == 200
    assert server.complete(max_tokens=1).status_code == 200


def test_top_k_beyond_the_vocabulary_is_no_top_k(server: RunningServer) -> None:
    body = {"max_tokens": 16, "temperature": 1.0, "seed": 3, "ignore_eos": True}
    texts = [text_of(server, **body, **extra) for extra in ({}, {"top_k": 0}, {"top_k": 10**9})]
    assert len(set(texts)) == 1
    assert text_of(server, **body, top_k=1) != texts[0]


def test_seed_means_nothing_at_temperature_0(server: RunningServer) -> None:
    texts = {text_of(server, max_tokens=16, temperature=0, seed=seed, ignore_eos=True) for seed in range(4)}
    assert len(texts) == 1


def test_penalty_is_of_its_own_request_in_both_orders(server: RunningServer) -> None:
    penalized: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "repetition_penalty": 2.0}
    other: dict[str, Any] = {"seed": 99, "max_tokens": 10, "top_k": 1}
    bodies = [{"prompt": PROMPT, "ignore_eos": True, **body} for body in (penalized, other)]
    alone = [text_of(server, **body) for body in bodies]
    assert alone[0][: len(alone[1])] != alone[1], "the penalty changes nothing: void"
    for order in ((0, 1), (1, 0)):
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(text_of, server, **bodies[order[0]])
            time.sleep(0.01)  # some steps apart
            second = pool.submit(text_of, server, **bodies[order[1]])
            assert [first.result(), second.result()] == [alone[index] for index in order]


# Numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "status"), [("auto", 200), ("float16", 500)])
def test_overflow_is_an_error_and_never_a_text(tmp_path: Path, dtype: str, status: int) -> None:
    folder = write_tiny_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    for name in ("gate_proj", "up_proj"):
        weights[f"model.layers.0.mlp.{name}.weight"] *= 5000.0  # beyond 65504, the most that float16 holds
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with tiny_server(folder, dtype=dtype) as server:
        assert server.http.get("/version").json()["dtype"] == ("bfloat16" if dtype == "auto" else dtype)
        answer = server.complete(max_tokens=8, ignore_eos=True)
        assert answer.status_code == status
        failed = status == 500
        assert server.metric(contract.REQUESTS_FINISHED, reason="error") == failed
        if failed:
            assert "not finite" in answer.json()["error"]["message"]
            assert server.events(max_tokens=8)[-2]["error"]["message"]
        assert server.http.get("/health").status_code == 200


# The thread ------------------------------------------------------------------------------------


def kill(thread: threading.Thread) -> None:
    """Raise what no code expects at the thread's next instruction."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "octavo-engine"}


def test_killed_engine_thread_ends_streams_with_an_error_and_health(folder: Path) -> None:
    before = engine_threads()
    body = {**ENDLESS, "max_tokens": 400, "stream": True}
    with tiny_server(folder, num_kv_blocks=64) as server:
        (thread,) = engine_threads() - before
        with (
            ThreadPoolExecutor(1) as pool,
            server.http.stream("POST", "/v1/completions", json=body) as stream,
        ):
            lines = (line for line in stream.iter_lines() if line)
            first = parse_event(next(lines))
            waiting = pool.submit(server.complete, max_tokens=400, ignore_eos=True)
            killed_at = time.monotonic()
            kill(thread)
            events = [first, *(parse_event(line) for line in lines)]
            assert time.monotonic() - killed_at < 2
            assert waiting.result(5).status_code in (500, 503)
        assert "the engine has failed" in events[-2]["error"]["message"]
        assert events[-1] == "[DONE]"
        assert not any(choice["finish_reason"] for event in events[:-2] for choice in event["choices"])
        eventually(lambda: server.http.get("/health").status_code == 503, within=2)
        assert server.http.get("/ready").status_code == 503
        assert server.complete().status_code == 503
        assert server.metric(contract.REQUESTS_FINISHED, reason="error") >= 1


def test_engine_killed_while_idle_fails_health_with_the_next_request(folder: Path) -> None:
    before = engine_threads()
    with tiny_server(folder) as server:
        (thread,) = engine_threads() - before
        kill(thread)  # it waits for commands, and dies when one comes
        assert server.complete().status_code in (500, 503)
        eventually(lambda: server.http.get("/health").status_code == 503, within=2)


# The start -------------------------------------------------------------------------------------


def test_model_without_a_template_is_told_once_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_tiny_model(tmp_path, template=None)
    with caplog.at_level("WARNING"), tiny_server(folder) as server:
        assert [server.chat().status_code for _ in range(2)] == [400, 400]
        assert server.complete(max_tokens=2).status_code == 200
    told = [record for record in caplog.records if "no chat template" in record.getMessage()]
    assert len(told) == 1
