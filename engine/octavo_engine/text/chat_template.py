"""Chat templates: a model's Jinja program that writes a conversation the way it was trained on.

The environment is that of `transformers` (sandboxed, blocks trimmed, the same functions), without
importing it. A template is data from the model's author: it may refuse a conversation
(`raise_exception`), and that refusal is the client's to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.errors import InvalidConfig, OctavoError
from octavo_engine.gguf_file import GGUFFile, find_gguf, model_folder
from octavo_engine.text.gguf_tokenizer import gguf_chat_template, gguf_special_tokens
from octavo_engine.text.tokenizer import read_json_object, read_special_tokens
from octavo_engine.text.tool_calls import OPENING

Message = Mapping[str, Any]


class TemplateRefused(OctavoError):
    """The template cannot or will not write this conversation."""


class ChatTemplate:
    """A compiled template with the model's special tokens at hand."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            variables = meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise InvalidConfig(f"chat template: {error}") from error
        self.writes_tools = "tools" in variables and OPENING in source
        """Whether it tells the model of tools, and to call them in the form that is understood here."""
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Message],
        extra: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt that asks for the assistant's next message; raises TemplateRefused."""
        values = {**(extra or {}), **self._special_tokens}
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=True, **values
            )
        except jinja2.TemplateError as error:
            raise TemplateRefused(str(error) or type(error).__name__) from error
        except (TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            raise TemplateRefused(f"{type(error).__name__}: {error}") from error


def load_chat_template(model: Path) -> ChatTemplate | None:
    """The template in a model's folder (its own file first, as `transformers` does) or GGUF file, or None."""
    model_dir, gguf_path = model_folder(model), find_gguf(model)
    config = read_json_object(model_dir / "tokenizer_config.json")
    path = model_dir / "chat_template.jinja"
    source = (
        path.read_text(encoding="utf-8") if path.is_file() else _default_template(config.get("chat_template"))
    )
    special_tokens = read_special_tokens(config)
    if source is None and gguf_path is not None:
        file = GGUFFile(gguf_path)
        source = gguf_chat_template(file)
        special_tokens = read_special_tokens(gguf_special_tokens(file)) | special_tokens
    return None if source is None else ChatTemplate(source, special_tokens)


def _default_template(value: object) -> str | None:
    """tokenizer_config.json holds one template, or a list of named ones with a `default`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
    default = named.get("default")
    return default if isinstance(default, str) else None


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class GenerationBlock(Extension):
    """`{% generation %}` marks what is trained on; for serving it is its contents."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it as a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
