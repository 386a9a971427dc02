"""The OpenAI routes: parse, submit, answer. Nothing here computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from octavo_engine.requests import EngineRequest
from octavo_engine.server.answering import Answer, answer_stream, answer_whole
from octavo_engine.server.choices import Echo
from octavo_engine.server.connection import EventStream, while_connected
from octavo_engine.server.formats import ChatFormat, CompletionFormat
from octavo_engine.server.gate import read_body
from octavo_engine.server.messages import parse_messages, render_chat
from octavo_engine.server.openai_errors import bad_request
from octavo_engine.server.openapi import described, described_answer, described_text
from octavo_engine.server.prompts import Prompt, count_prompts, encode, parse_prompts
from octavo_engine.server.request_log import EXCHANGE
from octavo_engine.server.sampling import build_sampling_params, chat_max_tokens, completion_max_tokens
from octavo_engine.server.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    SamplingBody,
    TokenizeBody,
    parse_body,
)
from octavo_engine.server.serving import Serving, build_answer, build_requests
from octavo_engine.server.structured import compile_form, wanted_form
from octavo_engine.server.tools import form_with_tools, parse_tool_use


def build_routes(serving: Serving) -> APIRouter:
    """Routes of one served model."""
    router = APIRouter()

    @router.post("/v1/completions", **described_answer("Completion", CompletionBody))
    async def completions(request: Request) -> Response:
        body = parse_body(CompletionBody, await read_body(request, serving.max_body_bytes))
        return await _answer(request, serving, body, *await _prepare_completion(serving, body))

    @router.post("/v1/chat/completions", **described_answer("ChatCompletion", ChatBody))
    async def chat_completions(request: Request) -> Response:
        body = parse_body(ChatBody, await read_body(request, serving.max_body_bytes))
        return await _answer(request, serving, body, *await _prepare_chat(serving, body))

    @router.get("/v1/models", **described("ModelList", 401, 503))
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": _model_cards(serving)})

    @router.get("/v1/models/{name:path}", **described("Model", 401, 404, 503))
    async def model(name: str) -> Response:
        card = next((card for card in _model_cards(serving) if card["id"] == name), None)
        if card is None:
            raise serving.unknown_model(name)
        return JSONResponse(card)

    @router.post("/tokenize", **described_text("Tokens", TokenizeBody))
    async def tokenize(request: Request) -> Response:
        body = parse_body(TokenizeBody, await read_body(request, serving.max_body_bytes))
        serving.check_model(body.model)
        ids = await _tokenize(serving, body)
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": serving.facts.max_model_len})

    @router.post("/detokenize", **described_text("Text", DetokenizeBody))
    async def detokenize(request: Request) -> Response:
        body = parse_body(DetokenizeBody, await read_body(request, serving.max_body_bytes))
        serving.check_model(body.model)
        for token_id in body.tokens:
            if not 0 <= token_id < serving.facts.vocab_size:
                raise bad_request(f"tokens: {token_id} is outside the vocabulary", param="tokens")
        return JSONResponse({"prompt": serving.tokenizer.decode(body.tokens, skip_special_tokens=False)})

    return router


async def _prepare_completion(serving: Serving, body: CompletionBody) -> tuple[list[EngineRequest], Answer]:
    serving.check_model(body.model)
    _check_count(serving, count_prompts(body.prompt), body, param="prompt")
    vocab_size, max_model_len = serving.facts.vocab_size, serving.facts.max_model_len
    prompts = await parse_prompts(body.prompt, serving.tokenizer, vocab_size)
    params = [
        build_sampling_params(
            body,
            serving.defaults,
            max_tokens=completion_max_tokens(
                body, prompt_tokens=len(prompt.token_ids), max_model_len=max_model_len
            ),
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
            vocab_size=vocab_size,
        )
        for prompt in prompts
    ]
    grammar = await compile_form(wanted_form(body), body, serving.grammars)
    requests = build_requests(serving, prompts, params, body, grammar)
    shape = CompletionFormat(serving.tokenizer, with_logprobs=body.logprobs is not None)
    echoes = _echoes(serving, prompts, body) if body.echo else ()
    return requests, build_answer(serving, body, requests, shape, continues_prompt=True, echoes=echoes)


def _check_count(serving: Serving, num_prompts: int, body: SamplingBody, *, param: str) -> None:
    """Refuse what would not even fit into an empty queue: trying again would never help."""
    wanted, most = num_prompts * (body.n or 1), serving.client.max_open
    if wanted > most:
        raise bad_request(
            f"{param}: {num_prompts} prompts with n {body.n or 1} are {wanted} sequences, and this server "
            f"takes at most {most} at once; send fewer in one request",
            param=param,
        )


def _echoes(serving: Serving, prompts: Sequence[Prompt], body: CompletionBody) -> list[Echo]:
    echoes = [
        Echo(
            text=serving.tokenizer.decode(prompt.token_ids) if prompt.text is None else prompt.text,
            token_ids=prompt.token_ids,
            is_all=body.max_tokens == 0,
        )
        for prompt in prompts
    ]
    return [echo for echo in echoes for _ in range(body.n or 1)]


async def _prepare_chat(serving: Serving, body: ChatBody) -> tuple[list[EngineRequest], Answer]:
    serving.check_model(body.model)
    _check_count(serving, 1, body, param="n")
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs: only with logprobs true", param="top_logprobs")
    use = parse_tool_use(body, serving.template)
    text = render_chat(
        serving.template, parse_messages(body.messages), body.chat_template_kwargs, use.described
    )
    ids = await encode(serving.tokenizer, text, add_special_tokens=False)
    if not ids:
        raise bad_request("messages: the chat template made an empty prompt of them", param="messages")
    params = build_sampling_params(
        body,
        serving.defaults,
        max_tokens=chat_max_tokens(body, prompt_tokens=len(ids), max_model_len=serving.facts.max_model_len),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        vocab_size=serving.facts.vocab_size,
    )
    grammar = await compile_form(form_with_tools(use, wanted_form(body)), body, serving.grammars)
    requests = build_requests(serving, [Prompt(token_ids=tuple(ids), text=text)], [params], body, grammar)
    shape = ChatFormat(serving.tokenizer, with_logprobs=bool(body.logprobs))
    return requests, build_answer(serving, body, requests, shape, continues_prompt=False, tool_use=use)


async def _answer(
    request: Request, serving: Serving, body: SamplingBody, requests: list[EngineRequest], answer: Answer
) -> Response:
    request.scope[EXCHANGE].answer = answer
    submission = await while_connected(request.receive, serving.client.submit(requests))
    if body.stream:
        return EventStream(answer_stream(answer, submission), on_close=submission.abandon)
    try:
        return JSONResponse(await while_connected(request.receive, answer_whole(answer, submission)))
    finally:
        submission.abandon()


async def _tokenize(serving: Serving, body: TokenizeBody) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("prompt: send either prompt or messages", param="prompt")
    if body.messages is not None:
        text = render_chat(serving.template, parse_messages(body.messages))
        return await encode(serving.tokenizer, text, add_special_tokens=bool(body.add_special_tokens))
    add = body.add_special_tokens is not False
    return await encode(serving.tokenizer, body.prompt or "", add_special_tokens=add)


def _model_cards(serving: Serving) -> list[dict[str, Any]]:
    """The model, then its adapters, each with the model as its parent."""
    base = serving.identity.model_name
    card = {
        "id": base,
        "object": "model",
        "created": int(serving.started),
        "owned_by": "octavo",
        "root": base,
        "parent": None,
        "max_model_len": serving.facts.max_model_len,
        "revision": serving.identity.revision,
    }
    adapted = [
        {**card, "id": adapter.name, "created": int(adapter.loaded), "parent": base}
        for adapter in serving.adapters()
    ]
    return [card, *adapted]
