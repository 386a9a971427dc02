"""An engine of the real one's interface that says what it is told to: for tests of text and API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo.engine_contract import OUTPUT_BOUNDS, UNCACHED_PROMPT_BOUNDS
from octavo_engine.engine_facts import AdapterFacts, EngineFacts, EngineStats, LayerKernels
from octavo_engine.requests import (
    REFUSED_ADAPTER,
    REFUSED_UNKNOWN_ADAPTER,
    EngineRequest,
    Refusal,
    TokenEvent,
    TokenLogprob,
)

Script = Callable[[EngineRequest], Sequence[int]]
"""The token ids that a request will get; the last one is repeated when they run out."""

BLOCK_SIZE = 16


def scripted_facts(**changes: object) -> EngineFacts:
    facts = EngineFacts(
        device="cpu",
        dtype="float32",
        kv_dtype="float32",
        kernels=(LayerKernels(kind="full attention", num_layers=1, path="scripted", reason="a test"),),
        block_size=BLOCK_SIZE,
        block_bytes=1024,
        num_kv_blocks=64,
        kv_blocks_bound="the number asked for",
        measured_kv_blocks=64,
        planned_kv_blocks=None,
        capacity_tokens=1024,
        context_len=1024,
        max_model_len=1024,
        max_num_seqs=4,
        max_num_batched_tokens=512,
        max_waiting=60,
        prefix_caching=True,
        speculative_ngram=0,
        kv_bytes_per_token=64,
        weights_bytes=0,
        memory_limit_bytes=2**30,
        num_threads=1,
        eos_token_ids=frozenset({2}),
        vocab_size=1000,
        revision="",
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


@dataclass
class Running:
    request: EngineRequest
    script: Sequence[int]
    num_tokens: int = 0


@dataclass
class ScriptedEngine:
    """One token per running request and step, in order of arrival."""

    script: Script
    facts: EngineFacts = field(default_factory=scripted_facts)
    step_seconds: float = 0.0
    fail_at_step: int | None = None
    fail_sequences: int = 0
    """So many sequences end with an error of their own."""
    refuse: Callable[[EngineRequest], Refusal | None] = lambda request: None
    num_steps: int = 0
    num_generated: int = 0
    requests: list[EngineRequest] = field(default_factory=list)
    aborted: list[tuple[str, str]] = field(default_factory=list)
    may_step: threading.Event = field(default_factory=threading.Event)
    loaded: dict[str, AdapterFacts] = field(default_factory=dict)
    fail_at_load: bool = False
    _open: dict[str, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.may_step.set()

    def add_request(self, request: EngineRequest) -> Refusal | None:
        refusal = self.refuse(request)
        if refusal is None:
            self.requests.append(request)
            self._open[request.request_id] = Running(request, self.script(request))
        return refusal

    def abort(self, request_id: str, reason: str = "abort") -> None:
        if self._open.pop(request_id, None) is not None:
            self.aborted.append((request_id, reason))

    def has_work(self) -> bool:
        return bool(self._open)

    def step(self, now: float) -> list[TokenEvent]:
        self.may_step.wait()
        time.sleep(self.step_seconds)
        self.num_steps += 1
        if self.fail_at_step == self.num_steps:
            raise RuntimeError("the step went wrong")
        return [self._advance(running, now) for running in self._running()]

    @property
    def adapters(self) -> tuple[AdapterFacts, ...]:
        return tuple(self.loaded.values())

    def load_adapter(self, name: str, folder: Path) -> Refusal | None:
        if self.fail_at_load:
            raise RuntimeError("the load went wrong")
        if not folder.is_dir():
            return Refusal(REFUSED_ADAPTER, f"adapter {name!r}: no folder {str(folder)[:99]!r}")
        self.loaded[name] = AdapterFacts(name=name, identity=name, num_bytes=1)
        return None

    def unload_adapter(self, name: str) -> Refusal | None:
        gone = self.loaded.pop(name, None)
        return None if gone else Refusal(REFUSED_UNKNOWN_ADAPTER, f"no adapter {name[:99]!r}")

    def stats(self) -> EngineStats:
        num_running = len(self._running())
        return EngineStats(
            num_running=num_running,
            num_waiting=len(self._open) - num_running,
            kv_tokens_per_block=BLOCK_SIZE,
            blocks_total=self.facts.num_kv_blocks,
            blocks_referenced=num_running,
            blocks_cached=0,
            blocks_free=self.facts.num_kv_blocks - num_running,
            admitted=len(self.requests),
            preemptions=0,
            recomputed_tokens=0,
            prompt_tokens=sum(len(request.prompt_token_ids) for request in self.requests),
            cached_prompt_tokens=0,
            generated_tokens=self.num_generated,
            draft_tokens=0,
            accepted_draft_tokens=0,
            failed_rows=0,
            uncached_prompt_tokens_squared=0,
            uncached_prompt_buckets=(0,) * (len(UNCACHED_PROMPT_BOUNDS) + 1),
            output_tokens=0,
            output_buckets=(0,) * (len(OUTPUT_BOUNDS) + 1),
            steps=self.num_steps,
            step_seconds=self.num_steps * self.step_seconds,
            step_prefill_tokens=0,
            step_context_tokens=0,
            step_sequences=0,
        )

    def _running(self) -> list[Running]:
        return list(self._open.values())[: self.facts.max_num_seqs]

    def _advance(self, running: Running, now: float) -> TokenEvent:
        request, position = running.request, running.num_tokens
        if self.fail_sequences:
            self.fail_sequences -= 1
            del self._open[request.request_id]
            return TokenEvent(
                request_id=request.request_id, token_ids=(), finish_reason="error", error="not finite"
            )
        token_id = running.script[min(position, len(running.script) - 1)]
        running.num_tokens += 1
        self.num_generated += 1
        reason = self._end(running, token_id)
        if reason is not None:
            del self._open[request.request_id]
        return TokenEvent(
            request_id=request.request_id,
            token_ids=(token_id,),
            logprobs=_logprobs(request, token_id),
            finish_reason=reason,
            queue_seconds=now - request.arrival if position == 0 else None,
        )

    def _end(self, running: Running, token_id: int) -> str | None:
        params = running.request.params
        ends = params.stop_token_ids | (frozenset() if params.ignore_eos else self.facts.eos_token_ids)
        if token_id in ends and running.num_tokens > params.min_tokens:
            return "stop"
        return "length" if running.num_tokens >= params.max_tokens else None


def _logprobs(request: EngineRequest, token_id: int) -> tuple[TokenLogprob, ...]:
    wanted = request.params.logprobs
    if wanted is None:
        return ()
    top = tuple((token_id + offset, -0.5 - offset) for offset in range(wanted))
    return (TokenLogprob(token_id=token_id, logprob=-0.5, top=top),)
