"""Tools over HTTP: told to the model by its template, called by choice or by force, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.octavo_engine.server.conftest import StartServer, scripted_server
from tests.octavo_engine.server.running_server import HELLO, MODEL, RunningServer
from tests.octavo_engine.server.test_refusals import assert_refused
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

TEMPLATE = (
    "{% if tools %}tools:{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    " <tool_call></tool_call>|{% endif %}"
    "{% for message in messages %}{{ message.role + ':' + message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}"
    "{% endfor %}|{% endfor %}assistant:"
)
CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"]}
CITY = {**CITY, "additionalProperties": False, "$defs": {"city": {"enum": ["Ulm", "Bonn"]}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
SAMPLED = {"max_tokens": 150, "temperature": 1.0, "seed": 4}


def tool(name: str = "weather", **function: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": CITY, **function},
    }


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def past_call(arguments: str) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}


BOTH = [tool(), tool("time", parameters=None)]


@pytest.fixture(scope="module")
def saying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose model thinks aloud and calls."""
    script = [b"Well", b".", b"\n", *(bytes([byte]) for byte in CALL.encode())]
    folder = tmp_path_factory.mktemp("saying")
    with scripted_server(folder, script, text_files={"template": TEMPLATE}) as running:
        yield running


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A random model, which calls only because it must."""
    with tiny_server(write_tiny_model(tmp_path_factory.mktemp("random"), template=TEMPLATE)) as running:
        yield running


def prompt_of(server: RunningServer) -> str:
    ids = list(server.engine.requests[-1].prompt_token_ids)
    return str(server.http.post("/detokenize", json={"tokens": ids}).json()["prompt"])


def forced(server: RunningServer, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    response = server.chat(tools=BOTH, **{**SAMPLED, **body})
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    calls = [call["function"] for call in choice["message"].get("tool_calls", [])]
    return [{**call, "arguments": json.loads(call["arguments"])} for call in calls], choice


def test_call_is_returned_and_tools_are_in_the_prompt(saying: RunningServer) -> None:
    choice = saying.chat(tools=BOTH).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Well."
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Ulm"}'}
    prompt = prompt_of(saying)
    assert prompt.startswith('tools:{"type": "function", "function": {"name": "weather"')
    assert "strict" not in prompt


def test_openai_client_assembles_a_streamed_call(saying: RunningServer) -> None:
    arguments: Any = {"model": MODEL, "messages": HELLO, "tools": BOTH}
    with saying.openai().chat.completions.stream(**arguments) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "Well."
    assert final.message.tool_calls is not None
    assert final.message.tool_calls[0].function.arguments == '{"city": "Ulm"}'
    chunks = list(saying.openai().chat.completions.create(**arguments, stream=True))
    pieces = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert [piece.id is not None for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert len(pieces) > 5, "arguments should come as they are written"


@pytest.mark.parametrize("body", [{"tools": BOTH, "tool_choice": "none"}, {"tools": []}, {"tools": None}])
def test_without_tools_a_call_is_text(saying: RunningServer, body: dict[str, Any]) -> None:
    message = saying.chat(**body).json()["choices"][0]["message"]
    assert message["content"] == f"Well.\n{CALL}"
    assert "tool_calls" not in message
    assert "tools:" not in prompt_of(saying)


def test_history_of_calls_and_results_is_written_by_the_template(saying: RunningServer) -> None:
    call = past_call('{"a": "é"}')
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12 C"}]},
    ]
    assert saying.chat(messages=messages, tools=[tool()]).status_code == 200
    assert prompt_of(saying).endswith('|user:a|assistant:f{"a": "é"}|tool:12 C|assistant:')


def test_single_call_ends_the_answer(tmp_path: Path) -> None:
    script = [bytes([byte]) for byte in f"{CALL}\n{CALL}".encode()]
    with scripted_server(tmp_path, script, text_files={"template": TEMPLATE}) as server:
        choice = server.chat(tools=[tool()], parallel_tool_calls=False).json()["choices"][0]
        assert len(choice["message"]["tool_calls"]) == 1
        assert choice["finish_reason"] == "tool_calls"
        assert server.engine.aborted[-1][1] == "stop"
        assert len(server.chat(tools=[tool()]).json()["choices"][0]["message"]["tool_calls"]) == 2


@pytest.mark.parametrize("seed", range(3))
def test_required_call_keeps_to_a_schema(random: RunningServer, seed: int) -> None:
    calls, choice = forced(random, tool_choice="required", parallel_tool_calls=False, seed=seed)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = calls
    if call["name"] == "weather":
        assert call["arguments"] in ({"city": "Ulm"}, {"city": "Bonn"})
    else:
        assert call["name"] == "time"


def test_named_tool_is_called_streamed_and_whole(random: RunningServer) -> None:
    body = {"tool_choice": named("weather")}
    calls, choice = forced(random, **body)
    assert [call["name"] for call in calls] == ["weather"]
    assert choice["finish_reason"] == "stop"
    events = random.events("/v1/chat/completions", tools=BOTH, **body, **SAMPLED)[:-1]
    pieces = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])]
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == calls[0]["arguments"]


def test_strict_tool_leaves_text_free_and_binds_calls(random: RunningServer) -> None:
    choice = random.chat(tools=[tool(strict=True)], **{**SAMPLED, "max_tokens": 30}).json()["choices"][0]
    assert choice["message"]["content"]


def test_answer_is_a_call_or_in_its_form(random: RunningServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}
    calls, choice = forced(random, response_format=form, parallel_tool_calls=False)
    assert calls or choice["message"]["content"] in ("true", "false")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param({"tools": [{"type": "web_search"}]}, "tools", id="kind of tool"),
        pytest.param({"tools": [{"type": "function"}]}, "tools", id="no function"),
        pytest.param({"tools": [tool(), tool()]}, "tools", id="same name twice"),
        pytest.param({"tools": [tool("a b")]}, "tools", id="name"),
        pytest.param({"tools": [tool(surprise=1)]}, "tools", id="unknown field"),
        pytest.param({"tool_choice": "required"}, "tool_choice", id="required without tools"),
        pytest.param({"tools": [tool()], "tool_choice": "sometimes"}, "tool_choice", id="unknown choice"),
        pytest.param({"tools": [tool()], "tool_choice": named("other")}, "tool_choice", id="unknown tool"),
        pytest.param(
            {"tools": [tool(parameters={"type": "xyz"})], "tool_choice": "required"}, "tools", id="schema"
        ),
        pytest.param(
            {"tools": [tool()], "structured_outputs": {"grammar": 'start: "a"'}},
            "structured_outputs",
            id="grammar and tools",
        ),
    ],
)
def test_tools_are_refused_by_field(saying: RunningServer, body: dict[str, Any], param: str) -> None:
    assert_refused(saying.chat(**body), 400, param)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"role": "tool", "content": "a"}, id="result of no call"),
        pytest.param({"role": "assistant", "tool_calls": "f"}, id="calls as text"),
        pytest.param({"role": "assistant", "tool_calls": [{"id": "a"}]}, id="no function"),
        pytest.param({"role": "assistant", "tool_calls": [{"id": "a", **named("f")}]}, id="no arguments"),
        pytest.param({"role": "assistant", "tool_calls": [past_call("{")]}, id="arguments cut off"),
        pytest.param({"role": "assistant", "tool_calls": [past_call("[]")]}, id="arguments as list"),
        pytest.param({"role": "user", "content": "a", "tool_calls": [1]}, id="user calls"),
    ],
)
def test_wrong_history_is_refused(saying: RunningServer, message: dict[str, Any]) -> None:
    assert "messages[1]" in assert_refused(saying.chat(messages=[*HELLO, message]), 400, "messages")


def test_template_without_tools_refuses_them(start_server: StartServer) -> None:
    server = start_server()
    assert "template" in assert_refused(server.chat(tools=[tool()]), 400, "tools")
    assert server.chat(tools=[tool()], tool_choice="none").status_code == 200
