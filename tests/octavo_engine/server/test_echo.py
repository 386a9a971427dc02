"""`echo`: the prompt in front of its answer or alone, with the log-probabilities of its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.octavo_engine.server.running_server import MODEL, RunningServer
from tests.octavo_engine.server.test_refusals import assert_refused
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model
from tests.octavo_engine.text.small_tokenizers import SPECIAL

PROMPT = "Eine Katze, naïve 👋 Hunde"
ONLY = {"prompt": PROMPT, "max_tokens": 0, "echo": True, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with tiny_server(write_tiny_model(tmp_path_factory.mktemp("llama"))) as running:
        yield running


def streamed(server: RunningServer, **body: Any) -> dict[str, Any]:
    """The pieces of one choice put together."""
    text, logprobs, reason = "", {}, None
    for event in server.events(**body)[:-1]:
        choice = event["choices"][0]
        text += choice["text"]
        reason = choice["finish_reason"]
        for name, values in (choice["logprobs"] or {}).items():
            logprobs[name] = logprobs.get(name, []) + values
    return {"index": 0, "text": text, "logprobs": logprobs or None, "finish_reason": reason}


def test_prompt_alone_is_scored_and_nothing_is_generated(server: RunningServer) -> None:
    answer = server.complete(**ONLY, logprobs=1).json()
    (choice,) = answer["choices"]
    num_tokens = answer["usage"]["prompt_tokens"]
    assert choice["text"] == PROMPT
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert {name: len(values) for name, values in logprobs.items()} == dict.fromkeys(logprobs, num_tokens)
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert all(len(top) == 1 for top in logprobs["top_logprobs"][1:])


@pytest.mark.parametrize("body", [{**ONLY, "logprobs": 2}, {**ONLY, "max_tokens": 6, "logprobs": 0}, ONLY])
def test_echo_is_the_same_streamed_and_whole(server: RunningServer, body: dict[str, Any]) -> None:
    assert streamed(server, **body) == server.complete(**body).json()["choices"][0]


def test_offsets_say_where_each_token_stands_in_prompt_and_answer(server: RunningServer) -> None:
    body = {**ONLY, "max_tokens": 8, "logprobs": 0, "ignore_eos": True}
    choice = server.complete(**body).json()["choices"][0]
    offsets = choice["logprobs"]["text_offset"]
    assert offsets == sorted(offsets)
    for token, offset in zip(choice["logprobs"]["tokens"], offsets, strict=True):
        has_no_text = token in SPECIAL or token.startswith("bytes:")
        assert has_no_text or choice["text"][offset:].startswith(token)


def test_scores_of_several_prompts_and_choices_are_their_own(server: RunningServer) -> None:
    prompts = [PROMPT, "Mond"]
    choices = server.complete(**{**ONLY, "prompt": prompts}, n=2, logprobs=0).json()["choices"]
    alone = [server.complete(**{**ONLY, "prompt": prompt}, logprobs=0).json() for prompt in prompts]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    for choice in choices:
        expected = alone[choice["index"] // 2]["choices"][0]["logprobs"]["token_logprobs"]
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(expected[1:], abs=1e-4)


def test_openai_client_reads_an_echo(server: RunningServer) -> None:
    answer = server.openai().completions.create(model=MODEL, **ONLY, logprobs=1)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens


def test_no_tokens_without_echo_is_refused(server: RunningServer) -> None:
    assert "echo" in assert_refused(server.complete(max_tokens=0), 400, "max_tokens")
