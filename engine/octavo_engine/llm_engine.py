"""The engine: requests in, tokens out, one step at a time.

Single-threaded: one thread loads it and calls everything. A step is schedule → run → sample →
record; every end of a sequence goes through the scheduler's one `finish`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from octavo_engine.admissibility import refusal_of
from octavo_engine.config import EngineConfig
from octavo_engine.engine_facts import AdapterFacts, EngineFacts, EngineStats
from octavo_engine.execution.adapters import AdapterTable, unknown_adapter
from octavo_engine.execution.cache_sizing import (
    BlockCount,
    decide_block_count,
    kv_cache_shape,
    one_sequence_layout,
)
from octavo_engine.execution.kv_cache import KVCache, KVCacheShape
from octavo_engine.execution.loaded_model import load_model
from octavo_engine.execution.logits import SampleRow
from octavo_engine.execution.model_runner import ModelRunner
from octavo_engine.execution.prompt_logprobs import PromptLogprobs
from octavo_engine.execution.settled_facts import settle_facts
from octavo_engine.execution.speed import measure_speed
from octavo_engine.execution.verification import Drawn, draw_and_verify
from octavo_engine.memory import memory_limit_bytes, num_threads
from octavo_engine.models.adaptable import make_adaptable
from octavo_engine.plan_agreement import report_agreement
from octavo_engine.requests import EngineRequest, Refusal, SamplingParams, TokenConstraint, TokenEvent
from octavo_engine.scheduling.batch_layout import BatchLayout, build_batch_layout
from octavo_engine.scheduling.scheduler import ScheduledSequence, Scheduler, SchedulerLimits, SequenceUpdate
from octavo_engine.scheduling.sequence import Sequence, StopConditions
from octavo_engine.scheduling.step_sums import StepSums

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    """How one sequence in flight is sampled."""

    params: SamplingParams
    seed: int
    constraint: TokenConstraint | None
    adapter: str
    """Identity of the adapter it holds on to."""


class LLMEngine:
    """One model on one device."""

    def __init__(
        self,
        *,
        facts: EngineFacts,
        runner: ModelRunner,
        scheduler: Scheduler,
        adapters: AdapterTable,
        max_waiting: int,
    ) -> None:
        self._facts = facts
        self._adapters = adapters
        self._runner = runner
        self._scheduler = scheduler
        self._max_waiting = max_waiting
        self._sampling: dict[str, _Sampling] = {}
        self._arrivals: dict[str, float] = {}  # of requests that were never admitted yet
        self._queue_seconds: dict[str, float] = {}  # of requests that gave no event yet
        self._prompt_logprobs = PromptLogprobs()
        self._num_added = 0
        self._sums = StepSums()
        self._failed_rows = 0

    @classmethod
    def load(cls, config: EngineConfig, progress: Progress | None = None) -> LLMEngine:
        """Load weights, measure, allocate, and generate one token, so that a ready engine works."""
        torch.set_num_threads(num_threads())
        device = torch.device(config.device)
        limit = config.memory_limit_bytes or memory_limit_bytes()
        report = progress or _ignore_progress
        model = load_model(config, limit_bytes=limit, device=device, progress=report)
        adaptable = make_adaptable(model.decoder) if config.max_adapters else None
        if adaptable is not None:
            model = replace(model, decoder=adaptable.decoder)
        adapters = AdapterTable(adaptable, max_adapters=config.max_adapters, max_rank=config.max_adapter_rank)
        report("measuring memory", 0.0)
        shape = kv_cache_shape(config, model)
        count = decide_block_count(
            config, model, shape, limit_bytes=limit, reserved_bytes=adapters.most_bytes, device=device
        )
        report_agreement(config, model.raw_config, count.memory, limit_bytes=limit)
        runner = ModelRunner(
            model.decoder, KVCache(shape, num_blocks=count.num_blocks, device=device), device=device
        )
        adapters.load_all(config.adapters)
        report("first token", 0.0)
        one_token = one_sequence_layout(shape, 1, num_samples=1)
        runner.run(one_token)
        scheduler = _build_scheduler(config, shape, count)
        facts = replace(
            settle_facts(
                config,
                model,
                shape,
                count,
                limit_bytes=limit,
                capacity_tokens=scheduler.capacity_tokens(limit=model.declared_model_len),
            ),
            adapter_bytes=adapters.most_bytes,
            speed=measure_speed(model.decoder.head, step=lambda: runner.run(one_token)),
        )
        return cls(
            facts=facts,
            runner=runner,
            scheduler=scheduler,
            adapters=adapters,
            max_waiting=config.max_waiting,
        )

    @property
    def facts(self) -> EngineFacts:
        """What this engine runs with."""
        return self._facts

    # Requests -----------------------------------------------------------------------------------

    def add_request(self, request: EngineRequest) -> Refusal | None:
        """Queue a request, or say why it is not taken."""
        refusal = refusal_of(
            request,
            facts=self._facts,
            in_flight=request.request_id in self._sampling,
            num_waiting=len(self._scheduler.waiting),
            max_waiting=self._max_waiting,
        )
        if refusal is not None:
            return refusal
        adapter = self._adapters.identity_of(request.adapter)
        if adapter is None:
            return unknown_adapter(request.adapter)
        self._adapters.use(adapter)
        seed = request.params.seed
        self._sampling[request.request_id] = _Sampling(
            params=request.params,
            seed=int.from_bytes(os.urandom(8)) if seed is None else seed,
            constraint=request.constraint,
            adapter=adapter,
        )
        self._arrivals[request.request_id] = request.arrival
        if request.params.prompt_logprobs is not None:
            self._prompt_logprobs.begin(request.request_id)
        self._scheduler.add(self._sequence_of(request, adapter))
        self._num_added += 1
        return None

    def _sequence_of(self, request: EngineRequest, adapter: str) -> Sequence:
        params = request.params
        ends = (
            params.stop_token_ids if params.ignore_eos else params.stop_token_ids | self._facts.eos_token_ids
        )
        return Sequence(
            request_id=request.request_id,
            order=self._num_added,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=len(request.prompt_token_ids),
            stop=StopConditions(
                max_tokens=params.max_tokens, min_tokens=params.min_tokens, stop_token_ids=ends
            ),
            salt=_cache_salt(request),
            adapter=adapter,
        )

    def abort(self, request_id: str, reason: Literal["abort", "stop"] = "abort") -> None:
        """End a request from outside; nothing happens if it has ended already. No event follows."""
        self._scheduler.finish(request_id, reason)
        self._forget(request_id)

    def has_work(self) -> bool:
        """Whether a step would do something."""
        return self._scheduler.has_work()

    def _forget(self, request_id: str) -> None:
        sampling = self._sampling.pop(request_id, None)
        if sampling is not None:
            self._adapters.leave(sampling.adapter)
        for known in (self._arrivals, self._queue_seconds):
            known.pop(request_id, None)
        self._prompt_logprobs.forget(request_id)

    # Adapters -----------------------------------------------------------------------------------

    @property
    def adapters(self) -> tuple[AdapterFacts, ...]:
        """Those that requests can name."""
        return self._adapters.listed

    def load_adapter(self, name: str, folder: Path) -> Refusal | None:
        """Take on a LoRA adapter; requests wait meanwhile."""
        return self._adapters.load(name, folder)

    def unload_adapter(self, name: str) -> Refusal | None:
        """Take no more requests for an adapter; its memory is given back with the last that it has."""
        return self._adapters.unload(name)

    # One step -----------------------------------------------------------------------------------

    def step(self, now: float) -> list[TokenEvent]:
        """Compute one batch and return what it did for each request that drew a token or ended."""
        started = time.perf_counter()
        scheduled = self._scheduler.schedule()
        if not scheduled:
            return []
        self._note_admissions(scheduled, now)
        layout = build_batch_layout(
            scheduled, groups=self._scheduler.groups, block_size=self._facts.block_size
        )
        self._sums.add(scheduled, layout)
        results = self._compute(layout, scheduled)
        events = self._fail_rows(results)
        tokens = {name: drawn.token_ids for name, drawn in results.items() if drawn.token_ids}
        events += [
            self._event(update, results[update.sequence.request_id])
            for update in self._scheduler.record(scheduled, tokens)
        ]
        self._sums.seconds += time.perf_counter() - started
        return events

    def _note_admissions(self, scheduled: SequenceOf[ScheduledSequence], now: float) -> None:
        for item in scheduled:
            arrival = self._arrivals.pop(item.sequence.request_id, None)
            if arrival is not None:
                self._queue_seconds[item.sequence.request_id] = max(0.0, now - arrival)

    def _compute(self, layout: BatchLayout, scheduled: SequenceOf[ScheduledSequence]) -> dict[str, Drawn]:
        self._adapters.set_rows(layout.adapter_rows)
        hidden = self._runner.forward(layout)
        for item in scheduled:
            if self._prompt_logprobs.is_wanted(item.sequence.request_id):
                self._collect_prompt_logprobs(item, layout, hidden)
        logits = self._runner.logits(hidden[layout.sample_rows])
        drawn = draw_and_verify(logits, layout.sampled, self._row)
        return {item.sequence.request_id: one for item, one in zip(layout.sampled, drawn, strict=True)}

    def _collect_prompt_logprobs(
        self, item: ScheduledSequence, layout: BatchLayout, hidden: torch.Tensor
    ) -> None:
        sequence = item.sequence
        first_row = layout.first_rows[sequence.request_id]
        self._prompt_logprobs.collect(
            sequence.request_id,
            hidden[first_row : first_row + item.num_new_tokens],
            first_position=sequence.num_computed_tokens,
            prompt_token_ids=sequence.token_ids[: sequence.num_prompt_tokens],
            num_top=self._sampling[sequence.request_id].params.prompt_logprobs or 0,
            logits=self._runner.logits,
        )

    def _row(self, item: ScheduledSequence, num_drafts: int) -> SampleRow:
        sequence = item.sequence
        sampling = self._sampling[sequence.request_id]
        output = sequence.token_ids[sequence.num_prompt_tokens :]
        return SampleRow(
            params=sampling.params,
            seed=sampling.seed,
            prompt_token_ids=sequence.token_ids[: sequence.num_prompt_tokens],
            output_token_ids=[*output, *item.draft_token_ids[:num_drafts]],
            end_token_ids=sequence.stop.stop_token_ids,
            constraint=sampling.constraint,
        )

    def _fail_rows(self, results: dict[str, Drawn]) -> list[TokenEvent]:
        """End the sequences for which no token could be drawn; the others of the batch go on."""
        failed = {name: drawn.error for name, drawn in results.items() if not drawn.token_ids}
        for request_id in failed:
            self._scheduler.finish(request_id, "error")
            self._forget(request_id)
        self._failed_rows += len(failed)
        not_finite = f"the model's scores are not finite in {self._facts.dtype}"
        return [
            TokenEvent(request_id=request_id, token_ids=(), finish_reason="error", error=error or not_finite)
            for request_id, error in failed.items()
        ]

    def _event(self, update: SequenceUpdate, drawn: Drawn) -> TokenEvent:
        sequence = update.sequence
        queue_seconds = self._queue_seconds.pop(sequence.request_id, None)
        prompt_logprobs = self._prompt_logprobs.take(sequence.request_id)
        if update.finish_reason is not None:
            self._forget(sequence.request_id)
        return TokenEvent(
            request_id=sequence.request_id,
            token_ids=update.token_ids,
            logprobs=tuple(drawn.logprobs),
            prompt_logprobs=prompt_logprobs,
            finish_reason=update.finish_reason,
            num_cached_tokens=sequence.num_cached_tokens,
            queue_seconds=queue_seconds,
        )

    # Numbers ------------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Gauges and totals at this moment."""
        blocks, counters = self._scheduler.pool.counts, self._scheduler.counters
        sums, num_groups = self._sums, len(self._scheduler.groups)
        return EngineStats(
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting),
            kv_tokens_per_block=self._facts.block_size / num_groups,
            blocks_total=blocks.total,
            blocks_referenced=blocks.referenced,
            blocks_cached=blocks.cached,
            blocks_free=blocks.free,
            admitted=counters.admitted,
            preemptions=counters.preemptions,
            recomputed_tokens=counters.recomputed_tokens,
            prompt_tokens=counters.prompt_tokens,
            cached_prompt_tokens=counters.cached_prompt_tokens,
            generated_tokens=counters.generated_tokens,
            draft_tokens=counters.draft_tokens,
            accepted_draft_tokens=counters.accepted_draft_tokens,
            failed_rows=self._failed_rows,
            uncached_prompt_tokens_squared=counters.uncached_prompt_tokens_squared,
            uncached_prompt_buckets=tuple(counters.uncached_prompt_buckets),
            output_tokens=counters.output_tokens,
            output_buckets=tuple(counters.output_buckets),
            steps=sums.steps,
            step_seconds=sums.seconds,
            step_prefill_tokens=sums.prefill_tokens,
            step_context_tokens=sums.group_context_tokens / num_groups,
            step_sequences=sums.sequences,
            running_adapters=self._adapters.names_of(self._scheduler.running),
            waiting_adapters=self._adapters.names_of(self._scheduler.waiting),
        )

    def preempt_newest(self) -> None:
        """Preempt a sequence though there may be room; its text must not change."""
        self._scheduler.preempt_newest()

    def check_integrity(self) -> None:
        """Assert the scheduler's invariants; for tests and idle moments."""
        self._scheduler.check_integrity()


def _cache_salt(request: EngineRequest) -> str:
    """A salt of its own where every row of the prompt must be computed once, and not found in the cache."""
    if request.params.prompt_logprobs is None:
        return request.cache_salt
    return f"{request.cache_salt}/{os.urandom(16).hex()}"


def _build_scheduler(config: EngineConfig, shape: KVCacheShape, count: BlockCount) -> Scheduler:
    limits = SchedulerLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_size=config.block_size,
        num_blocks=count.num_blocks,
        enable_prefix_caching=config.enable_prefix_caching,
        max_draft_tokens=config.speculative_ngram,
    )
    return Scheduler(limits=limits, groups=shape.groups, hash_root=os.urandom(32))


def _ignore_progress(_stage: str, _share: float) -> None:
    """Nobody watches."""
