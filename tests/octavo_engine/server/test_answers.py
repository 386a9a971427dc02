"""What a client reads: texts, streams, counts, forms of prompt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import MODEL, REVISION, RunningServer
from tests.octavo_engine.text.small_tokenizers import sentencepiece_tokenizer


def streamed_text(events: list[Any]) -> str:
    return "".join(choice["text"] for event in events[:-1] for choice in event["choices"])


def both_texts(server: RunningServer, **body: Any) -> tuple[str, str]:
    """The whole answer and the streamed one, with their finish reasons checked to agree."""
    whole = server.complete(**body).json()["choices"][0]
    events = server.events(**body)
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == whole["finish_reason"]
    return whole["text"], streamed_text(events)


@pytest.mark.parametrize(
    ("pieces", "stop", "text"),
    [
        pytest.param([b"DEF", b"G", b"HI", b"J"], ["DEFGHIJ"], "", id="stop spans tokens"),
        pytest.param([b"DEF", b"G", b"X"], ["DEFGHIJ"], "DEFGX", id="near miss released"),
        pytest.param([b"a", b",b", b",c", b"d"], ["b,c"], "a,", id="stop ends inside a token"),
        pytest.param([b"x", b"ab", b"c"], ["ab", "abc"], "x", id="one stop a prefix of the other"),
        pytest.param([b"x", b"y"], "a", "xy", id="stop in the prompt only"),
    ],
)
def test_stop_strings_end_stream_and_whole_answer_alike(
    start_server: StartServer, pieces: list[bytes], stop: object, text: str
) -> None:
    server = start_server(pieces)
    assert both_texts(server, stop=stop, max_tokens=20) == (text, text)


def test_stop_string_ends_the_sequence_in_the_engine(start_server: StartServer) -> None:
    server = start_server([b"x"], ends=False, step_seconds=0.01)
    answer = server.complete(stop=["xxx"], max_tokens=1000).json()
    assert answer["choices"][0] == {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}
    assert answer["usage"]["completion_tokens"] == 3
    assert server.metric("vllm:request_success_total", finished_reason="stop") == 1
    assert [reason for _, reason in server.engine.aborted] == ["stop"]


def test_stream_never_holds_half_a_character(start_server: StartServer) -> None:
    server = start_server([b" ", bytes.fromhex("F09F91"), b"\x8b", b" ", b"\xc4", b"\x8f"])
    events = server.events()
    assert "�" not in str(events)
    assert streamed_text(events) == " \U0001f44b ď" == server.complete().json()["choices"][0]["text"]


def test_sentencepiece_spaces_are_right_in_stream_and_whole(start_server: StartServer) -> None:
    pieces = ["▁Da", "ener", "ys", "▁is", "▁the", "▁", "▁x", "a", "▁a"]
    backend = sentencepiece_tokenizer(pieces)
    ids = [backend.token_to_id(piece) for piece in pieces[:7]]
    server = start_server(backend=backend, ids=ids)
    whole, streamed = both_texts(server, prompt="a ")
    assert whole == streamed
    assert whole.removeprefix(" ") == "Daenerys is the  x"
    assert server.chat().json()["choices"][0]["message"]["content"] == "Daenerys is the  x"


def test_end_token_is_counted_and_not_shown(start_server: StartServer) -> None:
    server = start_server([b"x", b"y", b"!"], facts={"eos_token_ids": frozenset({2, 3 + ord("!")})})
    answer = server.complete().json()
    assert answer["choices"][0]["text"] == "xy"
    assert answer["usage"]["completion_tokens"] == 3
    ignoring = server.complete(ignore_eos=True, max_tokens=6).json()
    assert ignoring["choices"][0]["finish_reason"] == "length"
    assert ignoring["choices"][0]["text"].startswith("xy!")


def test_usage_comes_once_after_the_finish_reason_when_asked_for(start_server: StartServer) -> None:
    server = start_server()
    path, options = "/v1/chat/completions", {"include_usage": True}
    for n in (1, 2):
        events = server.events(path, n=n, max_tokens=3, stream_options=options)
        with_usage = [event for event in events[:-1] if event["usage"] is not None]
        assert with_usage == [events[-2]]
        assert events[-2]["choices"] == []
        assert all(event["choices"] for event in events[:-2])
        whole = server.chat(n=n, max_tokens=3).json()["usage"]
        assert events[-2]["usage"] == whole
        assert whole["completion_tokens"] == 3 * n
    assert all("usage" not in event for event in server.events(path)[:-1])


def test_chat_stream_begins_with_the_role_and_ends_with_a_reason(start_server: StartServer) -> None:
    events = start_server().events("/v1/chat/completions")
    deltas = [event["choices"][0] for event in events[:-1]]
    assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(delta["delta"].get("content", "") for delta in deltas) == "xyz"
    assert [delta["finish_reason"] for delta in deltas][-2:] == [None, "stop"]


def test_prompts_in_all_forms_give_choices_in_order(start_server: StartServer) -> None:
    server = start_server()
    echoed = server.complete(prompt=["ab", "cd"], n=2, echo=True).json()
    assert [choice["index"] for choice in echoed["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in echoed["choices"]] == ["abxyz", "abxyz", "cdxyz", "cdxyz"]
    assert echoed["usage"]["prompt_tokens"] == 4
    assert len(server.complete(prompt=[10, 11, 12]).json()["choices"]) == 1
    events = server.events(prompt=[[10, 11], [12, 13]])
    finished = {c["index"] for event in events[:-1] for c in event["choices"] if c["finish_reason"]}
    assert finished == {0, 1}


def test_echo_of_ids_is_their_text_and_comes_first_in_a_stream(start_server: StartServer) -> None:
    events = start_server().events(prompt=[3 + ord("h"), 3 + ord("i")], echo=True)
    assert events[0]["choices"][0]["text"] == "hi"
    assert streamed_text(events) == "hixyz"


def test_every_answer_names_the_revision_and_the_request(start_server: StartServer) -> None:
    server = start_server()
    response = server.http.post(
        "/v1/completions", json={"model": MODEL, "prompt": "a"}, headers={"X-Request-Id": "mine-1"}
    )
    assert response.headers["x-request-id"] == "mine-1"
    assert response.json()["system_fingerprint"] == f"octavo-{REVISION[:12]}"
    assert all(event["system_fingerprint"] == f"octavo-{REVISION[:12]}" for event in server.events()[:-1])
    harmful = server.http.get("/v1/models", headers={"X-Request-Id": "a b"})
    assert harmful.headers["x-request-id"] != "a b"


def test_same_client_request_id_twice_at_once_is_two_requests(start_server: StartServer) -> None:
    server = start_server([b"x"], ends=False, step_seconds=0.001)
    body = {"model": MODEL, "prompt": "a", "max_tokens": 50}
    with server.http.stream(
        "POST", "/v1/completions", json={**body, "stream": True}, headers={"X-Request-Id": "id"}
    ) as stream:
        other = server.http.post("/v1/completions", json=body, headers={"X-Request-Id": "id"})
        assert other.json()["usage"]["completion_tokens"] == 50
        assert stream.read().count(b'"x"') == 50


@pytest.mark.parametrize("logprobs", [0, 2])
def test_completion_logprobs_are_one_per_token(start_server: StartServer, logprobs: int) -> None:
    answer = start_server().complete(logprobs=logprobs, max_tokens=3).json()["choices"][0]["logprobs"]
    assert answer["tokens"] == ["x", "y", "z"]
    assert answer["token_logprobs"] == [-0.5] * 3
    assert [len(alternatives) for alternatives in answer["top_logprobs"]] == [logprobs] * 3
    assert answer["text_offset"] == [0, 1, 2]


def test_logprobs_null_is_none_and_chat_true_is_without_alternatives(start_server: StartServer) -> None:
    server = start_server()
    assert server.complete(logprobs=None).json()["choices"][0]["logprobs"] is None
    content = server.chat(logprobs=True, max_tokens=3).json()["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"], entry["top_logprobs"]) for entry in content] == [
        ("x", [120], []),
        ("y", [121], []),
        ("z", [122], []),
    ]


def test_seeds_of_choices_differ_and_repeat(start_server: StartServer) -> None:
    server = start_server()
    for _ in range(2):
        server.complete(n=2, seed=42)
    seeds = [request.params.seed for request in server.engine.requests]
    assert seeds[:2] == seeds[2:]
    assert seeds[0] == 42 != seeds[1]


def test_default_sampling_comes_from_the_model(start_server: StartServer) -> None:
    server = start_server(text_files={"generation": {"temperature": 0.6, "top_p": 0.9, "top_k": 20}})
    server.complete()
    server.complete(temperature=0, top_p=1.0, top_k=10**9)
    default, asked = (request.params for request in server.engine.requests)
    assert (default.temperature, default.top_p, default.top_k) == (0.6, 0.9, 20)
    assert (asked.temperature, asked.top_p) == (0, 1.0)
    assert asked.top_k == server.engine.facts.vocab_size


def test_tokenize_and_detokenize_undo_each_other(start_server: StartServer) -> None:
    server = start_server()
    tokens = server.http.post("/tokenize", json={"prompt": "añ"}).json()
    assert tokens["count"] == 3
    assert server.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "añ"}
    chat = server.http.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    text = server.http.post("/detokenize", json={"tokens": chat["tokens"]}).json()["prompt"]
    assert text == "user:hi|assistant:"


def test_openai_client_reads_models_answers_and_streams(start_server: StartServer) -> None:
    server = start_server()
    client = server.openai()
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    assert client.completions.create(model=MODEL, prompt="a").choices[0].text == "xyz"
    messages: Any = [{"role": "user", "content": "a"}]
    assert client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content == "xyz"
    stream = client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "xyz"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4
