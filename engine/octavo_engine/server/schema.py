"""The fields of the OpenAI API that this server obeys; every other field is answered by 400.

Optional fields may be null, which is the same as absent. A field that others support and this server
does not may be sent only with the value that asks for nothing (`NEUTRAL_VALUES`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from octavo_engine.requests import MAX_LOGPROBS
from octavo_engine.server.openai_errors import ApiError, bad_request
from octavo_engine.server.wire_schemas import (
    ADAPTER_NAME_SCHEMA,
    MESSAGES_SCHEMA,
    PROMPT_SCHEMA,
    TEXT_OR_MESSAGES,
    TOKEN_IDS_SCHEMA,
)

MAX_CHOICES: Final = 128
MAX_TOOLS: Final = 128
MAX_STOP_STRINGS: Final = 16
MAX_STOP_LENGTH: Final = 1000

NEUTRAL_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "audio": (),
    "best_of": (1,),
    "function_call": ("none",),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Known fields without support here, each with the values that change nothing."""

Choice = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
TokenCount = Annotated[int, Field(ge=1, le=2**31 - 1)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopList = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Body):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None


class TextFormat(_Body):
    """An answer without a form."""

    type: Literal["text"]


class JsonObjectFormat(_Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(_Body):
    """What `json_schema` holds; the schema is obeyed whether `strict` or not."""

    name: str
    description: str | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class JsonSchemaFormat(_Body):
    """JSON that a schema describes."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class StructuredOutputs(_Body):
    """The form of the answer, given in exactly one way."""

    json_schema: Annotated[dict[str, Any] | bool | str | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Annotated[list[Choice], Field(min_length=1)] | None = None
    grammar: str | None = None


class Function(_Body):
    """A tool's name and its arguments' JSON schema."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Body):
    """What the model may call."""

    type: Literal["function"]
    function: Function


class FunctionName(_Body):
    """Names a tool."""

    name: str


class NamedToolChoice(_Body):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionName


class SamplingBody(_Body):
    """What completions and chat have in common."""

    model: str
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2, allow_inf_nan=False)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | StopList | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    cache_salt: Annotated[str, Field(max_length=256)] | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def stop_strings(self) -> list[str]:
        """As a list, whichever form was sent."""
        if isinstance(self.stop, str):
            return [self.stop]
        return self.stop or []


class CompletionBody(SamplingBody):
    """POST /v1/completions."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)]
    max_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """0 with `echo`: only the prompt is asked for, with its log-probabilities for instance."""
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


class ChatBody(SamplingBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Any], WithJsonSchema(MESSAGES_SCHEMA)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class TokenizeBody(_Body):
    """POST /tokenize: a text, or a conversation as the chat route would write it."""

    model_config = ConfigDict(json_schema_extra=TEXT_OR_MESSAGES)

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Any] | None, WithJsonSchema(MESSAGES_SCHEMA)] = None
    add_special_tokens: bool | None = None


class DetokenizeBody(_Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: Annotated[list[int], WithJsonSchema(TOKEN_IDS_SCHEMA)]


class LoadAdapterBody(_Body):
    """POST /v1/load_lora_adapter."""

    lora_name: Annotated[str, WithJsonSchema(ADAPTER_NAME_SCHEMA)]
    lora_path: Annotated[str, Field(min_length=1, max_length=4096)]
    """Of a folder on the server's machine."""


class UnloadAdapterBody(_Body):
    """POST /v1/unload_lora_adapter."""

    lora_name: Annotated[str, WithJsonSchema(ADAPTER_NAME_SCHEMA)]


Body = TypeVar("Body", bound=_Body)


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """A checked body; raises ApiError 400 naming the field."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    if b"\\ud" in raw.lower() and not _is_unicode(value):
        raise bad_request("the body holds a lone surrogate (half of a character), which is not valid Unicode")
    try:
        body = kind.model_validate(_without_neutral(value, kind))
    except ValidationError as error:
        raise _from_validation(error, kind) from error
    if isinstance(body, SamplingBody) and body.stream_options is not None and not body.stream:
        raise bad_request("stream_options: only with stream true", param="stream_options")
    return body


def _is_unicode(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_neutral(value: Mapping[str, Any], kind: type[_Body]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, content in value.items():
        if name in kind.model_fields or name not in NEUTRAL_VALUES:
            kept[name] = content
        elif content is not None and not _is_neutral(content, NEUTRAL_VALUES[name]):
            raise bad_request(
                f"{name}: is not supported by this server", param=name, code="unsupported_parameter"
            )
    return kept


def _is_neutral(content: object, neutral: tuple[object, ...]) -> bool:
    return any(content == value and type(content) is type(value) for value in neutral)


def _from_validation(error: ValidationError, kind: type[_Body]) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    path = [str(part) for part in first["loc"]]
    name = path[0] if path else None
    if first["type"] == "extra_forbidden":
        return bad_request(f"{'.'.join(path)}: unknown field", param=name, code="unknown_parameter")
    if first["type"] == "missing":
        return bad_request(f"{name}: is required", param=name, code="missing_required_parameter")
    shown = _shorten(first["input"])
    where = ".".join(path) if name in kind.model_fields else name
    return bad_request(f"{where}: {first['msg']}, got {shown}", param=name, code="invalid_value")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
