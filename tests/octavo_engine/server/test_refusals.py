"""What a client may not ask: a status, a body of the OpenAI form, and the server goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.octavo_engine.server.conftest import StartServer, scripted_server
from tests.octavo_engine.server.running_server import MODEL, RunningServer

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


BAD_COMPLETIONS = [
    pytest.param({"prompt": []}, "prompt", id="no prompt"),
    pytest.param({"prompt": ""}, "prompt", id="empty prompt"),
    pytest.param({"prompt": [[]]}, "prompt", id="empty ids"),
    pytest.param({"prompt": ["ab", [1]]}, "prompt", id="text and ids"),
    pytest.param({"prompt": [1, "a"]}, "prompt", id="ids and text"),
    pytest.param({"prompt": [True]}, "prompt", id="bool as id"),
    pytest.param({"prompt": [2147483647]}, "prompt", id="id above the vocabulary"),
    pytest.param({"prompt": [-1]}, "prompt", id="negative id"),
    pytest.param({"prompt": None}, "prompt", id="null prompt"),
    pytest.param({"max_tokens": 0}, "max_tokens", id="max_tokens 0"),
    pytest.param({"max_tokens": -1}, "max_tokens", id="max_tokens negative"),
    pytest.param({"max_tokens": "5"}, "max_tokens", id="max_tokens as text"),
    pytest.param({"n": 0}, "n", id="n 0"),
    pytest.param({"n": 5000000}, "n", id="n huge"),
    pytest.param({"logprobs": 1000000000}, "logprobs", id="logprobs huge"),
    pytest.param({"temperature": 999999.0}, "temperature", id="temperature"),
    pytest.param({"top_p": -1.0}, "top_p", id="top_p"),
    pytest.param({"repetition_penalty": 0.0}, "repetition_penalty", id="repetition_penalty"),
    pytest.param({"stop": ["x"] * 500000}, "stop", id="too many stops"),
    pytest.param({"stop": [""]}, "stop", id="empty stop"),
    pytest.param({"best_of": 3}, "best_of", id="best_of"),
    pytest.param({"suffix": "x"}, "suffix", id="suffix"),
    pytest.param({"min_tokens": 5, "max_tokens": 2}, "min_tokens", id="min above max"),
    pytest.param({"stop_token_ids": [99999]}, "stop_token_ids", id="stop id"),
    pytest.param({"stream_options": {"include_usage": True}}, "stream_options", id="options without stream"),
    pytest.param({"logit_bias": {"99999": 1}}, "logit_bias", id="bias above the vocabulary"),
    pytest.param({"logit_bias": {"-1": 1}}, "logit_bias", id="bias of a negative id"),
    pytest.param({"logit_bias": {"abc": 1}}, "logit_bias", id="bias of a word"),
    pytest.param({"logit_bias": {"5": 1000}}, "logit_bias", id="bias too large"),
    pytest.param({"logit_bias": {"5": None}}, "logit_bias", id="bias null"),
    pytest.param({"surprise": 1}, "surprise", id="unknown field"),
    pytest.param({"structured_outputs": {}}, "structured_outputs", id="no form"),
    pytest.param(
        {"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", id="two structures"
    ),
    pytest.param({"structured_outputs": {"regex": "[a-z"}}, "structured_outputs", id="bad regex"),
    pytest.param({"structured_outputs": {"grammar": "start: gone"}}, "structured_outputs", id="bad grammar"),
    pytest.param({"structured_outputs": {"choice": []}}, "structured_outputs", id="no choice"),
    pytest.param({"structured_outputs": {"json": "{"}}, "structured_outputs", id="schema is no JSON"),
    pytest.param({"structured_outputs": {"regex": "a" * 300_000}}, "structured_outputs", id="large grammar"),
]
BAD_CHATS = [
    pytest.param({"messages": []}, "messages", id="no messages"),
    pytest.param({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages", id="image"),
    pytest.param({"messages": [{"role": "user", "content": None}]}, "messages", id="null user content"),
    pytest.param({"messages": [{"role": "wizard", "content": "a"}]}, "messages", id="unknown role"),
    pytest.param({"messages": ["a"]}, "messages", id="message as text"),
    pytest.param({"max_tokens": 0}, "max_tokens", id="max_tokens 0"),
    pytest.param({"top_logprobs": 2}, "top_logprobs", id="top_logprobs alone"),
    pytest.param({"logprobs": True, "top_logprobs": 1000000000}, "top_logprobs", id="top_logprobs huge"),
    pytest.param({"response_format": {"type": "xml"}}, "response_format", id="response_format unknown"),
    pytest.param({"response_format": {"type": "json_schema"}}, "response_format", id="no schema"),
    pytest.param({"response_format": schema_format({"type": "xyz"})}, "response_format", id="bad schema"),
    pytest.param({"response_format": schema_format({"not": {}})}, "response_format", id="unsupported schema"),
    pytest.param(
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "structured_outputs",
        id="two forms",
    ),
    pytest.param(
        {"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos", id="form without end"
    ),
    pytest.param({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", id="two limits"),
    pytest.param(
        {"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs", id="template variable of ours"
    ),
]


def assert_refused(response: Any, status: int, param: str | None) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    return str(error["message"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with scripted_server(tmp_path_factory.mktemp("model")) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "param"), BAD_COMPLETIONS)
def test_completion_is_refused_by_field(
    server: RunningServer, body: dict[str, Any], param: str, stream: bool
) -> None:
    if "stream_options" in body and stream:
        body = {"stream_options": {"surprise": 1}}
    started = time.monotonic()
    message = assert_refused(server.complete(stream=stream, **body), 400, param)
    assert param in message
    assert time.monotonic() - started < 1
    assert server.complete().status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "param"), BAD_CHATS)
def test_chat_is_refused_by_field(
    server: RunningServer, body: dict[str, Any], param: str, stream: bool
) -> None:
    assert_refused(server.chat(stream=stream, **body), 400, param)
    assert server.chat().status_code == 200


def test_null_and_neutral_fields_change_nothing(server: RunningServer) -> None:
    names = ("temperature", "top_p", "max_tokens", "stop", "seed", "n", "stream", "logit_bias", "user")
    others = ("stream_options", "tools", "top_logprobs")
    neutral = {"frequency_penalty": 0, "response_format": {"type": "text"}, "store": False}
    answer = server.chat(
        **dict.fromkeys((*names, *others)), **neutral, tool_choice="none", parallel_tool_calls=True
    )
    assert answer.json()["choices"] == server.chat().json()["choices"]
    assert server.complete(best_of=1, suffix="").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_context_length_is_told_with_all_numbers(start_server: StartServer, stream: bool) -> None:
    server = start_server(ends=False, facts={"max_model_len": 128})
    for length in (128, 200):
        message = assert_refused(server.complete(prompt=[5] * length, stream=stream), 400, "prompt")
        assert "128" in message
        assert str(length) in message
        assert "-" not in message
    message = assert_refused(
        server.complete(prompt=[5] * 8, max_tokens=125, stream=stream), 400, "max_tokens"
    )
    assert all(number in message for number in ("128", "8", "125", "120"))


def test_chat_answer_may_fill_the_context(start_server: StartServer) -> None:
    server = start_server(ends=False, facts={"max_model_len": 128})
    answer = server.chat().json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 128


def test_unknown_model_is_404(server: RunningServer) -> None:
    assert_refused(server.complete(model="other"), 404, "model")
    assert_refused(server.http.get("/v1/models/other"), 404, "model")
    with pytest.raises(openai.NotFoundError):
        server.openai().completions.create(model="other", prompt="a")


def test_unknown_path_and_method_have_openai_bodies(server: RunningServer) -> None:
    assert_refused(server.http.get("/nothing"), 404, None)
    assert_refused(server.http.get("/v1/completions"), 405, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"a"', b"\xff", b"[" * 100000])
def test_body_that_is_no_object_is_400(server: RunningServer, content: bytes) -> None:
    assert_refused(server.http.post("/v1/completions", content=content), 400, None)


def test_body_too_large_is_413(start_server: StartServer) -> None:
    server = start_server()
    assert_refused(server.complete(prompt="a" * (17 * 2**20)), 413, None)
    assert server.complete().status_code == 200


def test_missing_model_is_named(server: RunningServer) -> None:
    assert_refused(server.http.post("/v1/completions", json={"prompt": "a"}), 400, "model")


def test_model_without_template_refuses_chat_and_serves_completions(start_server: StartServer) -> None:
    server = start_server(text_files={"template": None})
    assert "no chat template" in assert_refused(server.chat(), 400, "messages")
    assert server.complete().status_code == 200


def test_template_that_raises_is_400_with_its_words(start_server: StartServer) -> None:
    server = start_server(text_files={"template": "{{ raise_exception('roles must alternate') }}"})
    assert "roles must alternate" in assert_refused(server.chat(), 400, "messages")


def test_text_parts_are_joined_in_order(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "AAA"}, {"type": "text", "text": "BBB"}]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "CCC"},
    ]
    assert server.chat(messages=messages).status_code == 200
    ids = server.engine.requests[-1].prompt_token_ids
    text = server.http.post("/detokenize", json={"tokens": list(ids)}).json()["prompt"]
    assert text == "user:AAA\nBBB|assistant:|user:CCC|assistant:"
    assert not any(word in text for word in ("[{", "'type'", "None"))


@pytest.mark.parametrize("field", ["prompt", "model", "cache_salt", "stop"])
def test_lone_surrogate_is_400(server: RunningServer, field: str) -> None:
    body = json.dumps({"model": "m", "prompt": "a", field: "\ud800"})
    assert "surrogate" in assert_refused(server.http.post("/v1/completions", content=body), 400, None)
    assert server.complete(prompt="\U0001f44b").status_code == 200


def test_engine_refusal_is_400_and_leaves_no_sibling_running(start_server: StartServer) -> None:
    from octavo_engine.requests import Refusal

    def refuse(request: Any) -> Refusal | None:
        too_long = len(request.prompt_token_ids) > 5
        return Refusal("ExceedsCacheCapacity", "the KV cache holds 5 tokens") if too_long else None

    server = start_server(ends=False, refuse=refuse)
    response = server.complete(prompt=["ab", "abcdefgh"], stream=True, max_tokens=500)
    assert "holds 5 tokens" in assert_refused(response, 400, None)
    assert not server.engine.has_work()
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("octavo_requests_arrived_total") == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param({"prompt": ["a"] * 5}, "prompt", id="texts"),
        pytest.param({"prompt": [[5]] * 5}, "prompt", id="ids"),
        pytest.param({"prompt": ["a", "b"], "n": 3}, "prompt", id="prompts times choices"),
        pytest.param({"n": 5}, "prompt", id="choices"),
    ],
)
def test_more_sequences_than_the_queue_ever_holds_are_400(
    start_server: StartServer, body: dict[str, Any], param: str
) -> None:
    server = start_server(options={"max_open": 4})
    assert "at most 4" in assert_refused(server.complete(**body), 400, param)
    assert_refused(server.chat(n=5), 400, "n")
    assert server.engine.requests == []
    assert server.complete(prompt=["a", "b"], n=2).status_code == 200
    assert server.complete(prompt=[5, 6, 7, 8, 9]).status_code == 200  # one prompt of five tokens


def test_queue_that_the_engine_finds_full_is_429_and_demand(start_server: StartServer) -> None:
    from octavo_engine.requests import REFUSED_QUEUE_FULL, Refusal

    server = start_server(refuse=lambda request: Refusal(REFUSED_QUEUE_FULL, "60 wait already"))
    assert_refused(server.complete(n=2), 429, None)
    assert server.metric("octavo_requests_arrived_total") == 2


def test_full_queue_is_429_with_retry_after(start_server: StartServer) -> None:
    server = start_server(ends=False, step_seconds=0.01, options={"max_open": 2})
    body = {"model": MODEL, "prompt": ["a", "b"], "max_tokens": 500, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body):
        response = server.complete()
        assert_refused(response, 429, None)
        assert int(response.headers["retry-after"]) >= 1
        assert server.metric("octavo_requests_arrived_total") == 3
        with pytest.raises(openai.RateLimitError):
            server.openai().completions.create(model=MODEL, prompt="a")
