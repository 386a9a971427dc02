"""The metrics page: engine gauges as they are at the scrape, counters, and latency histograms.

Names are those of `octavo.engine_contract`. Nothing is copied into gauge objects, so nothing can
keep a last value after its cause is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo import engine_contract as contract
from octavo_engine.engine_facts import EngineFacts, EngineStats, MeasuredSpeed
from octavo_engine.server.histogram import histogram_family
from octavo_engine.server.request_timing import RequestTimings
from octavo_engine.what_runs import Identity

SUCCESS_REASONS: Final = ("stop", "length")
FINISH_REASONS: Final = ("stop", "length", "abort", "error")


class EngineCollector(Collector):
    """Builds the page anew for each scrape."""

    def __init__(
        self,
        *,
        identity: Identity,
        facts: EngineFacts,
        timings: RequestTimings,
        stats: Callable[[], EngineStats | None],
        is_draining: Callable[[], bool],
    ) -> None:
        self._identity = identity
        self._facts = facts
        self._timings = timings
        self._stats = stats
        self._is_draining = is_draining

    def collect(self) -> Iterator[Metric]:
        """Every metric of the contract."""
        stats = self._stats()
        if stats is not None:
            yield from self._of_stats(stats)
        yield from self._of_requests()
        yield from self._of_facts()
        label = self._identity.model_name
        yield from (histogram.family(contract.LABEL_MODEL, label) for histogram in self._timings.histograms)

    def _of_stats(self, stats: EngineStats) -> Iterator[Metric]:
        yield self._gauge(contract.NUM_REQUESTS_RUNNING, "Sequences in the running batch.", stats.num_running)
        yield self._gauge(contract.NUM_REQUESTS_WAITING, "Sequences that wait for room.", stats.num_waiting)
        yield self._gauge(
            contract.KV_CACHE_USAGE,
            "Ratio of KV blocks that running sequences refer to; cached idle blocks do not count.",
            stats.blocks_referenced / max(1, stats.blocks_total),
        )
        yield self._counter(contract.NUM_PREEMPTIONS, "Sequences put back to waiting.", stats.preemptions)
        yield self._counter(
            contract.PROMPT_TOKENS, "Prompt tokens of admitted requests.", stats.prompt_tokens
        )
        yield self._counter(contract.GENERATION_TOKENS, "Generated tokens.", stats.generated_tokens)
        yield self._counter(contract.REQUESTS_ADMITTED, "Sequences admitted.", stats.admitted)
        yield self._counter(
            contract.RECOMPUTED_TOKENS, "Tokens computed again after a preemption.", stats.recomputed_tokens
        )
        yield self._counter(
            contract.CACHED_PROMPT_TOKENS, "Prompt tokens found in the cache.", stats.cached_prompt_tokens
        )
        yield self._counter(
            contract.DRAFT_TOKENS, "Tokens guessed by speculation and computed.", stats.draft_tokens
        )
        yield self._counter(
            contract.ACCEPTED_DRAFT_TOKENS, "Guessed tokens that were right.", stats.accepted_draft_tokens
        )
        yield self._uncached_prompts(stats)
        yield self._outputs(stats)
        yield from self._of_steps(stats)
        yield from self._of_blocks(stats)
        if self._facts.max_adapters:
            yield self._adapters(stats)

    def _uncached_prompts(self, stats: EngineStats) -> Metric:
        return histogram_family(
            contract.UNCACHED_PROMPT_TOKENS,
            "Prompt tokens of an admitted request that the cache did not have.",
            {contract.LABEL_MODEL: self._identity.model_name},
            bounds=contract.UNCACHED_PROMPT_BOUNDS,
            counts=stats.uncached_prompt_buckets,
            total=stats.prompt_tokens - stats.cached_prompt_tokens,
        )

    def _outputs(self, stats: EngineStats) -> Metric:
        return histogram_family(
            contract.OUTPUT_TOKENS,
            "Generated tokens of a request that ended by itself.",
            {contract.LABEL_MODEL: self._identity.model_name},
            bounds=contract.OUTPUT_BOUNDS,
            counts=stats.output_buckets,
            total=stats.output_tokens,
        )

    def _of_steps(self, stats: EngineStats) -> Iterator[Metric]:
        yield self._counter(
            contract.UNCACHED_PROMPT_TOKENS_SQUARED,
            "Squares of the uncached prompt tokens of admitted requests.",
            stats.uncached_prompt_tokens_squared,
        )
        yield self._counter(contract.STEPS, "Engine steps.", stats.steps)
        yield self._counter(contract.STEP_SECONDS, "Time in engine steps.", stats.step_seconds)
        yield self._counter(
            contract.STEP_PREFILL_TOKENS, "Tokens of prompts and of recomputation.", stats.step_prefill_tokens
        )
        yield self._counter(
            contract.STEP_CONTEXT_TOKENS, "Cached tokens that attention read.", stats.step_context_tokens
        )
        yield self._counter(contract.STEP_SEQUENCES, "Sequences, once for each step.", stats.step_sequences)

    def _adapters(self, stats: EngineStats) -> Metric:
        labels = {
            "max_lora": str(self._facts.max_adapters),
            "running_lora_adapters": ",".join(stats.running_adapters),
            "waiting_lora_adapters": ",".join(stats.waiting_adapters),
        }
        return _info(contract.LORA_REQUESTS_INFO, "LoRA adapters in use.", labels, value=time.time())

    def _of_requests(self) -> Iterator[Metric]:
        timings = self._timings
        yield self._counter(
            contract.REQUESTS_ARRIVED,
            "Sequences asked for, those that found the queue full included.",
            timings.num_arrived,
        )
        yield self._by_reason(
            contract.REQUEST_SUCCESS, "Sequences completed.", "finished_reason", SUCCESS_REASONS
        )
        yield self._by_reason(
            contract.REQUESTS_FINISHED, "Sequences ended, for whatever reason.", "reason", FINISH_REASONS
        )
        yield self._gauge(contract.DRAINING, "1 while shutting down.", int(self._is_draining()))

    def _of_facts(self) -> Iterator[Metric]:
        facts, identity = self._facts, self._identity
        yield self._gauge(contract.MAX_SEQUENCES, "Sequences that can run at once.", facts.max_num_seqs)
        yield self._gauge(
            contract.MAX_BATCHED_TOKENS, "Tokens that a step computes at most.", facts.max_num_batched_tokens
        )
        yield self._gauge(
            contract.MAX_MODEL_LEN, "Tokens of prompt and output together.", facts.max_model_len
        )
        yield self._gauge(contract.WEIGHT_BYTES, "Size of the weights.", facts.weights_bytes)
        yield self._gauge(
            contract.KV_BYTES_PER_TOKEN, "KV cache of a token, all layers.", facts.kv_bytes_per_token
        )
        if facts.speed is not None:
            yield from self._of_speed(facts.speed)
        yield self._gauge(
            contract.MEASURED_KV_BLOCKS, "KV blocks the engine measured room for.", facts.measured_kv_blocks
        )
        if facts.planned_kv_blocks is not None:
            yield self._gauge(contract.PLANNED_KV_BLOCKS, "KV blocks planned.", facts.planned_kv_blocks)
        yield self._kernels()
        yield _info(
            contract.CACHE_CONFIG_INFO,
            "KV cache configuration.",
            {"block_size": str(facts.block_size), "num_gpu_blocks": str(facts.num_kv_blocks)},
        )
        yield _info(
            contract.ENGINE_INFO,
            "What this engine runs.",
            {
                "revision": identity.revision,
                "manifest_digest": identity.manifest_digest,
                "device": facts.device,
                "dtype": facts.dtype,
                "kv_dtype": facts.kv_dtype,
                "kernel_path": facts.kernel_path,
                "version": identity.version,
            },
        )

    def _kernels(self) -> Metric:
        labels = [contract.LABEL_MODEL, "kind", "path", "reason"]
        family = GaugeMetricFamily(
            contract.KERNEL_LAYERS, "Layers by the kernels that compute them.", labels=labels
        )
        for kernels in self._facts.kernels:
            family.add_metric(
                [self._identity.model_name, kernels.kind, kernels.path, kernels.reason], kernels.num_layers
            )
        return family

    def _gauge(self, name: str, documentation: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, documentation, labels=[contract.LABEL_MODEL])
        family.add_metric([self._identity.model_name], value)
        return family

    def _counter(self, name: str, documentation: str, value: float) -> Metric:
        family = CounterMetricFamily(name, documentation, labels=[contract.LABEL_MODEL])
        family.add_metric([self._identity.model_name], value)
        return family

    def _of_speed(self, speed: MeasuredSpeed) -> Iterator[Metric]:
        yield self._gauge(
            contract.MEASURED_READ_RATE,
            "Weights read by a projection of one row.",
            speed.read_bytes_per_second,
        )
        yield self._gauge(contract.MEASURED_GEMM_RATE, "Projection of many rows.", speed.gemm_flop_per_second)
        yield self._gauge(contract.MEASURED_STEP_SECONDS, "Step of one token at start.", speed.step_seconds)

    def _of_blocks(self, stats: EngineStats) -> Iterator[Metric]:
        counts = {
            "total": stats.blocks_total,
            "referenced": stats.blocks_referenced,
            "cached": stats.blocks_cached,
        }
        per_block = stats.kv_tokens_per_block
        tokens = {state: count * per_block for state, count in counts.items()}
        yield self._by_state(contract.KV_BLOCKS, "KV blocks by state.", {**counts, "free": stats.blocks_free})
        yield self._by_state(contract.KV_TOKENS, "KV blocks by state, in tokens of all layers.", tokens)

    def _by_state(self, name: str, documentation: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(name, documentation, labels=[contract.LABEL_MODEL, "state"])
        for state, value in values.items():
            family.add_metric([self._identity.model_name, state], value)
        return family

    def _by_reason(self, name: str, documentation: str, label: str, reasons: Iterable[str]) -> Metric:
        family = CounterMetricFamily(name, documentation, labels=[contract.LABEL_MODEL, label])
        finished: dict[str, int] = {str(key): count for key, count in self._timings.finished.items()}
        for reason in reasons:
            family.add_metric([self._identity.model_name, reason], finished.get(reason, 0))
        return family


def _info(name: str, documentation: str, labels: dict[str, str], *, value: float = 1) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def metrics_page(collector: Collector) -> bytes:
    """The page in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
