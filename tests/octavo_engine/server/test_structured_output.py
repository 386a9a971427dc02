"""Answers in a form that the client chose, from a random model that would never keep to it by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tests.octavo_engine.server.running_server import MODEL, RunningServer
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12, "pattern": "^[A-Z][a-z]+$"},
        "people": {"type": "integer", "minimum": 0, "maximum": 99999},
        "size": {"$ref": "#/$defs/size"},
    },
    "required": ["name", "people", "size"],
    "additionalProperties": False,
    "$defs": {"size": {"enum": ["small", "large"]}},
}
CITY_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
SAMPLED = {"max_tokens": 200, "temperature": 1.0, "seed": 11}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with tiny_server(write_tiny_model(tmp_path_factory.mktemp("llama"))) as running:
        yield running


def chat_text(server: RunningServer, **body: Any) -> str:
    response = server.chat(**{**SAMPLED, **body})
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return str(choice["message"]["content"])


def assert_city(text: str) -> None:
    city = json.loads(text)
    assert list(city) == ["name", "people", "size"]
    assert re.fullmatch("[A-Z][a-z]{1,11}", city["name"])
    assert 0 <= city["people"] <= 99999
    assert city["size"] in ("small", "large")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_schema_is_kept_streamed_and_whole(server: RunningServer, temperature: float) -> None:
    body = {**SAMPLED, "temperature": temperature, "response_format": CITY_FORMAT}
    whole = chat_text(server, **body)
    events = server.events("/v1/chat/completions", **body)[:-1]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == whole
    assert_city(whole)


def test_json_object_begins_an_object(server: RunningServer) -> None:
    answer = server.chat(response_format={"type": "json_object"}, **{**SAMPLED, "max_tokens": 20})
    assert answer.json()["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        pytest.param({"choice": ["yes", 'no "!"\n', "naïve 👋"]}, 'yes|no "!"\n|naïve 👋', id="choice"),
        pytest.param({"regex": r"[0-9]{3}/[a-f]{2}\n"}, r"[0-9]{3}/[a-f]{2}\n", id="regex"),
        pytest.param({"grammar": 'start: "<" word ">"\nword: /[a-z]{2,4}/'}, "<[a-z]{2,4}>", id="grammar"),
        pytest.param({"json": {"type": "boolean"}}, "true|false", id="json"),
        pytest.param({"json": '{"const": 7}'}, "7", id="json as text"),
    ],
)
def test_structured_output_is_kept_by_both_routes(
    server: RunningServer, wanted: dict[str, Any], pattern: str
) -> None:
    assert re.fullmatch(pattern, chat_text(server, structured_outputs=wanted))
    completion = server.complete(structured_outputs=wanted, n=3, **SAMPLED).json()
    for choice in completion["choices"]:
        assert re.fullmatch(pattern, choice["text"]), choice
        assert choice["finish_reason"] == "stop"


def test_min_tokens_yields_to_a_form_that_is_complete(server: RunningServer) -> None:
    assert chat_text(server, structured_outputs={"choice": ["a"]}, min_tokens=8) == "a"


def test_form_holds_beside_free_answers_in_one_batch(server: RunningServer) -> None:
    free = {"prompt": "Katze", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    alone = server.complete(**free).json()["choices"][0]["text"]
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(server.complete, **free) for _ in range(4)]
        bound = [pool.submit(chat_text, server, response_format=CITY_FORMAT, seed=seed) for seed in range(4)]
    assert {other.result().json()["choices"][0]["text"] for other in others} == {alone}
    for answer in bound:
        assert_city(answer.result())


def test_openai_client_parses_a_model_class(server: RunningServer) -> None:
    class Verdict(BaseModel):
        right: bool
        score: int = Field(ge=0, le=9)

    answer = server.openai().chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "a"}],
        response_format=Verdict,
        max_tokens=100,
        seed=5,
    )
    assert isinstance(answer.choices[0].message.parsed, Verdict)
