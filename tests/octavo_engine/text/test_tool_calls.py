"""Calls in a model's text: the same ones however the text is cut, and nothing lost of what is no call."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.text.tool_calls import ToolCallParser

ULM = '{"city": "Ulm", "days": [1, {"of": "}]"}], "note": "\\"</tool_call>\\" \\\\"}'
ONE = f'<tool_call>\n{{"name": "weather", "arguments": {ULM}}}\n</tool_call>'

CASES = [
    pytest.param("Just text. ", "Just text. ", [], id="text"),
    pytest.param(ONE, "", [("weather", ULM)], id="call alone"),
    pytest.param(f"Let me see.\n{ONE}\n", "Let me see.", [("weather", ULM)], id="text and call"),
    pytest.param(f"{ONE}\n{ONE}", "", [("weather", ULM)] * 2, id="two calls"),
    pytest.param(f"{ONE} Done.", " Done.", [("weather", ULM)], id="text behind"),
    pytest.param(
        '<tool_call>{"name":"f","arguments":{}}<tool_call>{"name":"g","arguments":{}}</tool_call>',
        "",
        [("f", "{}"), ("g", "{}")],
        id="closing tag left out",
    ),
    pytest.param(
        '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>',
        "",
        [("f", '{"a": 1}')],
        id="other order",
    ),
    pytest.param(
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("f", '{"a": 1}')],
        id="as text",
    ),
    pytest.param('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")], id="no arguments"),
    pytest.param('<tool_call>{"name": "f", "arguments": {"a": 1', "", [("f", '{"a": 1')], id="cut off"),
    pytest.param("a <tool_call>hm</tool_call> b", "a<tool_call>hm</tool_call> b", [], id="no json"),
    pytest.param("a < b <tool", "a < b <tool", [], id="beginning of a tag"),
    pytest.param('<tool_call>{"name": 5}', '<tool_call>{"name": 5}', [], id="never closed"),
    pytest.param("  \n ", "  \n ", [], id="space"),
]


def parse(pieces: Iterable[str], max_calls: int | None = None) -> tuple[str, list[tuple[str, str]]]:
    parser = ToolCallParser(max_calls)
    text, calls, ids = "", [], set()
    for parsed in (*(parser.push(piece) for piece in pieces), parser.finish()):
        text += parsed.text
        for call in parsed.calls:
            if call.name is not None:
                assert call.index == len(calls)
                ids.add(call.call_id)
                calls.append([call.name, call.arguments])
            else:
                assert call.call_id is None
                calls[call.index][1] += call.arguments
    assert len(ids) == len(calls) == parser.num_calls
    return text, [(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize(("text", "content", "calls"), CASES)
def test_text_and_calls_do_not_depend_on_how_the_text_was_cut(
    text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    assert parse([text]) == (content, calls)
    assert parse(list(text)) == (content, calls)
    for cut in range(len(text)):
        assert parse([text[:cut], text[cut:]]) == (content, calls)


@given(
    st.lists(
        st.sampled_from([*'{}[]"\\ ,:x\n', "<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', ONE])
    )
)
def test_any_text_gives_the_same_whole_and_by_character(parts: list[str]) -> None:
    text = "".join(parts)
    assert parse([text]) == parse(list(text))


def test_arguments_leave_before_the_call_is_complete() -> None:
    parser = ToolCallParser()
    (opening,) = parser.push('<tool_call>\n{"name": "f", "arguments": {').calls[:1]
    assert opening.name == "f"
    (piece,) = parser.push('"long": "te').calls
    assert piece.arguments == '"long": "te'


def test_call_limit_ends_the_text() -> None:
    parser = ToolCallParser(max_calls=1)
    assert not parser.push(ONE[:-1]).text
    assert not parser.full
    parser.push(ONE[-1:])
    assert parser.full
    assert parse([f"{ONE}\n{ONE} more"], max_calls=1) == ("", [("weather", ULM)])


def test_arguments_are_json() -> None:
    _, ((_, arguments),) = parse([ONE])
    assert json.loads(arguments)["note"] == '"</tool_call>" \\'
