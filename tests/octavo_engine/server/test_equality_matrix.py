"""Greedy text over HTTP is transformers', however it is computed, batched and delivered.

The axes: prefix cache × tokens in a step × preempted at every step × drafts × 1 or 16 prompts × whole or
streamed. The tokenizer has one letter for each token id, so that a text says which ids it is of.
"""

from __future__ import annotations

import contextlib
import json
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models

from octavo import engine_contract as contract
from octavo_engine.config import EngineConfig
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import TokenEvent
from tests.octavo_engine.oracle import (
    Prompted,
    count_near_ties,
    load_oracle,
    oracle_greedy,
    random_prompts,
    save_repeating_model,
)
from tests.octavo_engine.server.running_server import (
    MODEL,
    RunningServer,
    parse_event,
    running_server,
    serve_options,
    write_text_files,
)

LETTERS = string.ascii_lowercase[:24]
NUM_TOKENS = 16
NUM_TOKENS_OF_SHORT = 8
PATIENCE_SECONDS = 120.0


class PreemptingEngine:
    """Preempts its newest sequence after every step that drew a token."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine

    def step(self, now: float) -> list[TokenEvent]:
        events = self._engine.step(now)
        if events:
            self._engine.preempt_newest()
        self._engine.check_integrity()
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def letter_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: index for index, letter in enumerate(LETTERS)}, merges=[])
    )
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_repeating_model(tmp_path_factory.mktemp("llama"), vocab_size=len(LETTERS))
    return write_text_files(folder, letter_tokenizer())


@dataclass(frozen=True)
class Oracle:
    model: Any
    prompted: list[Prompted]
    short: list[Prompted]
    """For where a text is computed anew for each of its tokens, one token in a step."""

    def assert_texts(self, prompted: Sequence[Prompted], texts: Sequence[str]) -> int:
        """Those of transformers but for near ties, whose number is returned."""
        near_ties = 0
        for item, text in zip(prompted, texts, strict=True):
            output = [LETTERS.index(letter) for letter in text]
            assert len(output) == len(item.expected)
            if output != item.expected:
                near_ties += count_near_ties(self.model, item.prompt, output)
        return near_ties


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    model = load_oracle(folder)

    def prompted(num_tokens: int, longest: int) -> list[Prompted]:
        prompts = random_prompts(16, vocab_size=len(LETTERS), longest=longest)
        return [Prompted(prompt, oracle_greedy(model, prompt, num_tokens)) for prompt in prompts]

    return Oracle(model, prompted(NUM_TOKENS, longest=50), prompted(NUM_TOKENS_OF_SHORT, longest=17))


@contextlib.contextmanager
def matrix_server(folder: Path, *, preempting: bool, **settings: Any) -> Iterator[RunningServer]:
    config = EngineConfig(
        model_dir=folder, served_model_name=MODEL, dtype="float32", num_kv_blocks=400, **settings
    )

    def load() -> Any:
        engine = LLMEngine.load(config)
        return PreemptingEngine(engine) if preempting else engine

    with running_server(serve_options(folder), load) as server:
        yield server


def ask(server: RunningServer, prompted: Sequence[Prompted], *, stream: bool) -> list[str]:
    """One request with all prompts; the texts in their order."""
    body = {
        "model": MODEL,
        "prompt": [list(item.prompt) for item in prompted],
        "max_tokens": len(prompted[0].expected),
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as http:
        answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    texts, usage = streamed_texts(answer.text) if stream else whole_texts(answer.text)
    assert usage["completion_tokens"] == sum(len(item.expected) for item in prompted)
    assert usage["prompt_tokens"] == sum(len(item.prompt) for item in prompted)
    return [texts[index] for index in range(len(prompted))]


def whole_texts(content: str) -> tuple[dict[int, str], dict[str, int]]:
    answer = json.loads(content)
    return {choice["index"]: choice["text"] for choice in answer["choices"]}, answer["usage"]


def streamed_texts(content: str) -> tuple[dict[int, str], dict[str, int]]:
    events = [parse_event(line) for line in content.splitlines() if line]
    assert events.pop() == "[DONE]"
    usage = events.pop()["usage"]
    texts: dict[int, str] = {}
    ended: list[int] = []
    for event in events:
        (choice,) = event["choices"]
        assert choice["index"] not in ended
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        if choice["finish_reason"] is not None:
            assert choice["finish_reason"] == "length"
            ended.append(choice["index"])
    assert sorted(ended) == sorted(texts)
    return texts, usage


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("preempting", [False, True], ids=["undisturbed", "preempted at every step"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_text_is_transformers_whole_and_streamed_alone_and_with_fifteen_others(
    folder: Path, oracle: Oracle, chunk: int, caching: bool, preempting: bool, drafts: int
) -> None:
    prompted = oracle.short if preempting and chunk == 1 else oracle.prompted
    near_ties = num_tokens = 0
    with matrix_server(
        folder,
        preempting=preempting,
        max_num_batched_tokens=chunk,
        enable_prefix_caching=caching,
        speculative_ngram=drafts,
    ) as server:
        for stream in (False, True):
            for item in (prompted[0], prompted[-1]):
                near_ties += oracle.assert_texts([item], ask(server, [item], stream=stream))
            near_ties += oracle.assert_texts(prompted, ask(server, prompted, stream=stream))
            num_tokens += (2 + len(prompted)) * len(prompted[0].expected)
        assert (server.metric(contract.CACHED_PROMPT_TOKENS) > 0) == caching
        assert (server.metric(contract.NUM_PREEMPTIONS) >= 4 * NUM_TOKENS_OF_SHORT) == preempting
        assert (server.metric(contract.ACCEPTED_DRAFT_TOKENS) > 0) == (drafts > 0 and chunk > 1)
        assert server.metric(contract.KV_TOKENS, state="referenced") == 0
    assert near_ties * 1000 < num_tokens
