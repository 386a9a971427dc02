"""Calls of tools in a model's text, in the Hermes form that Qwen, SmolLM3 and many others are trained on:

    <tool_call>
    {"name": "weather", "arguments": {"city": "Ulm"}}
    </tool_call>

The parser takes the text piece by piece and gives the same calls however it was cut. Arguments leave as
they come, in the model's own words; what turns out to be no call leaves as text.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from octavo_engine.text.stop_strings import open_prefix

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"
HEAD: Final = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
CALL_OVER: Final = re.compile(f"{CLOSING}|(?={OPENING})")
"""Some models leave out the closing tag in front of another call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A piece of a call: its first has id and name, each may have more of the arguments' JSON."""

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a piece of text became."""

    text: str = ""
    calls: tuple[CallDelta, ...] = ()


class ObjectEnd:
    """Finds the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The position behind the object's last brace, or None if it goes on."""
        for position, char in enumerate(text):
            if self._in_string:
                self._pass_in_string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return position + 1
        return None

    def _pass_in_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


class ToolCallParser:
    """Divides one choice's text into content and calls. `full`: no more calls are wanted."""

    def __init__(self, max_calls: int | None = None) -> None:
        self._max_calls = max_calls
        self._buffer = ""
        self._content = ""
        self._calls: list[CallDelta] = []
        self._next = self._in_text
        self._arguments = ObjectEnd()
        self.num_calls = 0
        self.full = False

    def push(self, text: str) -> Parsed:
        """Take more text."""
        self._buffer += text
        while not self.full and self._next():
            pass
        return self._take()

    def finish(self) -> Parsed:
        """The text has ended: release what was held back for a call that did not come."""
        if self._next == self._in_head:
            self._content += OPENING + self._buffer
        elif (
            not self.full and self._next == self._in_text and not (self.num_calls and self._buffer.isspace())
        ):
            self._content += self._buffer
        self._buffer = ""
        return self._take()

    def _take(self) -> Parsed:
        parsed = Parsed(text=self._content, calls=tuple(self._calls))
        self._content, self._calls = "", []
        return parsed

    # Each state takes what it can of the buffer and says whether the next one can go on. -------------

    def _in_text(self) -> bool:
        content, opening, rest = self._buffer.partition(OPENING)
        if opening:
            self._content += content.rstrip()
            self._buffer, self._next = rest, self._in_head
            return True
        sure = self._buffer[: len(self._buffer) - open_prefix(self._buffer, OPENING)].rstrip()
        self._content += sure
        self._buffer = self._buffer[len(sure) :]
        return False

    def _in_head(self) -> bool:
        head = HEAD.match(self._buffer)
        name = None if head is None else _parse(head[1])
        if head is not None and isinstance(name, str):
            self._begin_call(name)
            self._buffer, self._next = self._buffer[head.end() :], self._in_arguments
            self._arguments = ObjectEnd()
            return True
        body, closing, rest = self._buffer.partition(CLOSING)
        if not closing:
            return False
        self._take_whole(body)
        self._buffer, self._next = rest, self._in_text
        return True

    def _in_arguments(self) -> bool:
        end = self._arguments.find(self._buffer)
        self._add_arguments(self._buffer[:end])
        self._buffer = "" if end is None else self._buffer[end:]
        if end is not None:
            self._next = self._in_tail
        return end is not None

    def _in_tail(self) -> bool:
        over = CALL_OVER.search(self._buffer)
        if over is None:
            return False
        self._buffer, self._next = self._buffer[over.end() :], self._in_text
        self._end_call()
        return True

    # Calls ------------------------------------------------------------------------------------------

    def _take_whole(self, body: str) -> None:
        """A call whose members come in another order, or something else between the tags."""
        value = _parse(body)
        name = value.get("name") if isinstance(value, dict) else None
        arguments = value.get("arguments", {}) if isinstance(value, dict) else None
        if isinstance(arguments, str):
            arguments = _parse(arguments)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            self._content += OPENING + body + CLOSING
            return
        self._begin_call(name)
        self._add_arguments(json.dumps(arguments, ensure_ascii=False))
        self._end_call()

    def _begin_call(self, name: str) -> None:
        self._calls.append(
            CallDelta(index=self.num_calls, call_id=f"call_{uuid.uuid4().hex[:24]}", name=name)
        )
        self.num_calls += 1

    def _add_arguments(self, piece: str) -> None:
        if piece:
            self._calls.append(CallDelta(index=self.num_calls - 1, arguments=piece))

    def _end_call(self) -> None:
        self.full = self._max_calls is not None and self.num_calls >= self._max_calls


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What a grammar must know of a tool."""

    name: str
    arguments_body: str
    """Lark's right side for the arguments."""


def forced_calls_grammar(tools: Sequence[ToolSignature], *, several: bool) -> str:
    """Nothing but calls of these tools, one or several."""
    return f"start: call{_more(several)}\n{_call_rules(tools, OPENING)}"


def calls_or_form_grammar(tools: Sequence[ToolSignature], form_body: str, *, several: bool) -> str:
    """Either calls or an answer in its form."""
    return f"start: form | call{_more(several)}\nform: {form_body}\n{_call_rules(tools, OPENING)}"


def free_calls_grammar(tools: Sequence[ToolSignature]) -> str:
    """Any text, with calls in it that are well-formed: a lazy rule ends where a call begins."""
    return (
        "start: (until_call call)* text\n"
        f"until_call[lazy]: /(.|\\n)*/ {json.dumps(OPENING)}\n"
        "text: /(.|\\n)*/\n"
        f"{_call_rules(tools, '')}"
    )


def _more(several: bool) -> str:
    return ' ("\\n" call)*' if several else ""


def _call_rules(tools: Sequence[ToolSignature], opening: str) -> str:
    names = " | ".join(f"call_{number}" for number in range(len(tools)))
    rules = [f"call: {names}"]
    for number, tool in enumerate(tools):
        head = f'{opening}\n{{"name": {json.dumps(tool.name)}, "arguments": '
        rules.append(
            f"call_{number}: {json.dumps(head)} arguments_{number} {json.dumps('}' + chr(10) + CLOSING)}\n"
            f"arguments_{number}: {tool.arguments_body}"
        )
    return "\n".join(rules) + "\n"
