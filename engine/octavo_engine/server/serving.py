"""Everything that the routes need, put together once at start."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from octavo_engine.engine_facts import AdapterFacts, EngineFacts
from octavo_engine.requests import EngineRequest, SamplingParams
from octavo_engine.server.access import Access
from octavo_engine.server.answering import Answer
from octavo_engine.server.choices import Choice, Echo
from octavo_engine.server.formats import AnswerFormat
from octavo_engine.server.lifecycle import Lifecycle
from octavo_engine.server.openai_errors import ApiError
from octavo_engine.server.prompts import Prompt
from octavo_engine.server.request_log import RequestLog
from octavo_engine.server.sampling import seed_of_choice
from octavo_engine.server.schema import SamplingBody
from octavo_engine.server.submissions import EngineClient
from octavo_engine.server.tools import NO_TOOLS, ToolUse
from octavo_engine.text.chat_template import ChatTemplate
from octavo_engine.text.choice_text import new_choice_text
from octavo_engine.text.generation_defaults import GenerationDefaults
from octavo_engine.text.grammar import Grammar, GrammarCompiler
from octavo_engine.text.tokenizer import TextTokenizer
from octavo_engine.what_runs import Identity

MAX_BODY_BYTES: Final = 16 * 2**20
"""A prompt of a million tokens as ids fits; a body is held in memory while it is read."""

FINGERPRINT_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One served model with its engine, tokenizer and state."""

    identity: Identity
    facts: EngineFacts
    client: EngineClient
    tokenizer: TextTokenizer
    template: ChatTemplate | None
    defaults: GenerationDefaults
    grammars: GrammarCompiler
    lifecycle: Lifecycle
    access: Access
    request_log: RequestLog
    unhealthy_because: Callable[[], str | None]
    metrics_page: Callable[[], bytes]
    adapters: Callable[[], Sequence[AdapterFacts]] = tuple
    """LoRA adapters that can be asked for at this moment."""
    allows_runtime_adapters: bool = False
    max_body_bytes: int = MAX_BODY_BYTES
    started: float = 0.0

    @property
    def system_fingerprint(self) -> str | None:
        """Says which weights answered; None for a directory of unknown origin."""
        revision = self.identity.revision
        return f"octavo-{revision[:FINGERPRINT_DIGITS]}" if revision else None

    @property
    def model_names(self) -> list[str]:
        """What a request can ask for: the model, and its adapters."""
        return [self.identity.model_name, *(adapter.name for adapter in self.adapters())]

    def check_model(self, name: str | None) -> None:
        """404 for any other model's name."""
        if name is not None and name not in self.model_names:
            raise self.unknown_model(name)

    def unknown_model(self, name: str) -> ApiError:
        """The answer to a name that is neither the model's nor an adapter's."""
        return ApiError(
            404,
            f"the model {name[:200]!r} is not served here; this is {self.identity.model_name!r}",
            param="model",
            code="model_not_found",
        )


def build_requests(
    serving: Serving,
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    body: SamplingBody,
    grammar: Grammar | None,
) -> list[EngineRequest]:
    """n sequences for each prompt, in the order of their choices, under ids of our own."""
    answer_id, arrival = uuid.uuid4().hex, time.monotonic()
    adapter = "" if body.model == serving.identity.model_name else body.model
    requests: list[EngineRequest] = []
    for prompt, prompt_params in zip(prompts, params, strict=True):
        for position in range(body.n or 1):
            requests.append(
                EngineRequest(
                    request_id=f"{answer_id}-{len(requests)}",
                    prompt_token_ids=prompt.token_ids,
                    params=replace(prompt_params, seed=seed_of_choice(prompt_params.seed, position)),
                    arrival=arrival,
                    cache_salt=body.cache_salt or "",
                    constraint=None if grammar is None else grammar.new_constraint(),
                    adapter=adapter,
                )
            )
    return requests


def build_answer(
    serving: Serving,
    body: SamplingBody,
    requests: Sequence[EngineRequest],
    shape: AnswerFormat,
    *,
    continues_prompt: bool,
    echoes: Sequence[Echo] = (),
    tool_use: ToolUse = NO_TOOLS,
) -> Answer:
    """The answer that the sequences will fill. A completion continues its prompt's text, a chat does not."""
    choices = [
        _build_choice(
            serving,
            body,
            index,
            request,
            continues_prompt=continues_prompt,
            echo=echoes[index] if echoes else None,
            tool_use=tool_use,
        )
        for index, request in enumerate(requests)
    ]
    return Answer(
        answer_id=requests[0].request_id.partition("-")[0],
        model=body.model,
        system_fingerprint=serving.system_fingerprint,
        format=shape,
        choices=choices,
        choices_per_prompt=body.n or 1,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _build_choice(
    serving: Serving,
    body: SamplingBody,
    index: int,
    request: EngineRequest,
    *,
    continues_prompt: bool,
    echo: Echo | None,
    tool_use: ToolUse,
) -> Choice:
    text = new_choice_text(
        serving.tokenizer.decode,
        silent_ids=serving.tokenizer.special_ids,
        stops=body.stop_strings,
        min_tokens=body.min_tokens or 0,
        context=request.prompt_token_ids if continues_prompt else (),
    )
    return Choice(
        index=index,
        request=request,
        text=text,
        hidden_ids=serving.facts.eos_token_ids | request.params.stop_token_ids,
        echo=echo,
        calls=tool_use.new_parser(),
        finish_reason_of_calls=tool_use.finish_reason,
    )
