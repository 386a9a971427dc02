"""The tools of a chat request: what may be called, what must be, and the grammar that sees to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from octavo_engine.server.openai_errors import bad_request
from octavo_engine.server.schema import ChatBody, NamedToolChoice, Tool
from octavo_engine.server.structured import WantedForm
from octavo_engine.text.chat_template import ChatTemplate
from octavo_engine.text.grammar import json_body
from octavo_engine.text.tool_calls import (
    ToolCallParser,
    ToolSignature,
    calls_or_form_grammar,
    forced_calls_grammar,
    free_calls_grammar,
)

NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
ANY_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How one request uses tools."""

    tools: tuple[Tool, ...] = ()
    """Those that the model is told of."""
    callable: tuple[Tool, ...] = ()
    """Those that it may call: the named one, or all."""
    is_forced: bool = False
    is_named: bool = False
    several: bool = True

    @property
    def described(self) -> list[dict[str, Any]]:
        """As the chat template takes them."""
        return [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in self.tools]

    @property
    def finish_reason(self) -> str:
        """Of an answer with calls; the OpenAI API says `stop` where it was told which tool to call."""
        return "stop" if self.is_named else "tool_calls"

    def new_parser(self) -> ToolCallParser | None:
        """For one choice's text; None where no calls are expected."""
        return ToolCallParser(None if self.several else 1) if self.tools else None


NO_TOOLS: Final = ToolUse()


def parse_tool_use(body: ChatBody, template: ChatTemplate | None) -> ToolUse:
    """What the request wants of its tools; raises ApiError naming the field."""
    tools, choice = tuple(body.tools or ()), body.tool_choice
    if not tools:
        if choice not in (None, "none", "auto"):
            raise bad_request("tool_choice: needs tools to choose from", param="tool_choice")
        return NO_TOOLS
    _check_names(tools)
    if choice == "none":
        return NO_TOOLS
    if template is not None and not template.writes_tools:
        raise bad_request(
            "tools: this model's chat template does not write tools with calls in the form <tool_call>, the "
            "one that this server understands; send tool_choice none, or ask for JSON by response_format",
            param="tools",
            code="tools_not_supported",
        )
    named = choice.function.name if isinstance(choice, NamedToolChoice) else None
    return ToolUse(
        tools=tools,
        callable=tools if named is None else _named(tools, named),
        is_forced=named is not None or choice == "required",
        is_named=named is not None,
        several=named is None and body.parallel_tool_calls is not False,
    )


def _check_names(tools: Sequence[Tool]) -> None:
    names = [tool.function.name for tool in tools]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise bad_request(f"tools[{position}].function.name: {name!r} is there twice", param="tools")


def _named(tools: Sequence[Tool], name: str) -> tuple[Tool, ...]:
    found = tuple(tool for tool in tools if tool.function.name == name)
    if not found:
        raise bad_request(f"tool_choice: {name!r} is none of the tools", param="tool_choice")
    return found


def form_with_tools(use: ToolUse, form: WantedForm | None) -> WantedForm | None:
    """The grammar of the whole answer, calls included.

    | calls     | form of the answer | the grammar allows               |
    |-----------|--------------------|----------------------------------|
    | none      | any                | the form                         |
    | forced    | any                | calls only                       |
    | possible  | response_format    | calls, or the form               |
    | possible  | none, strict tools | text, with calls by their schema |
    | possible  | none               | anything                         |
    """
    if not use.tools:
        return form
    if form is not None and form.body is None:
        raise bad_request(f"{form.param}: cannot be combined with tools", param="structured_outputs")
    if use.is_forced:
        signatures = [_signature(tool, obeyed=True) for tool in use.callable]
        return WantedForm(lark=forced_calls_grammar(signatures, several=use.several), param="tools")
    signatures = [_signature(tool, obeyed=bool(tool.function.strict)) for tool in use.callable]
    if form is not None and form.body is not None:
        lark = calls_or_form_grammar(signatures, form.body, several=use.several)
        return WantedForm(lark=lark, param="tools")
    if any(tool.function.strict for tool in use.callable):
        return WantedForm(lark=free_calls_grammar(signatures), param="tools")
    return None


def _signature(tool: Tool, *, obeyed: bool) -> ToolSignature:
    parameters = tool.function.parameters or NO_ARGUMENTS
    return ToolSignature(
        name=tool.function.name, arguments_body=json_body(parameters if obeyed else ANY_ARGUMENTS)
    )
