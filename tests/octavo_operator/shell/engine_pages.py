"""Metrics pages in the shape that the engine gives them, with any number one likes."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo import engine_contract as contract
from octavo_operator.shell import engine_page

LATENCY_BOUNDS = [0.01 * 1.1**power for power in range(89)]
HISTOGRAMS = (*engine_page.HISTOGRAMS, engine_page.LATER)
TOKEN_BOUNDS: dict[str, tuple[float, ...]] = {
    contract.UNCACHED_PROMPT_TOKENS: contract.UNCACHED_PROMPT_BOUNDS,
    contract.OUTPUT_TOKENS: contract.OUTPUT_BOUNDS,
}


def build_page(**changes: float) -> str:
    """An engine that has been busy; any number by its metric's name, histogram counts included."""
    values: dict[str, float] = dict.fromkeys((*engine_page.NUMBERS, *HISTOGRAMS), 1000.0)
    values |= {
        contract.NUM_REQUESTS_RUNNING: 3.0,
        contract.NUM_REQUESTS_WAITING: 2.0,
        contract.MAX_SEQUENCES: 8.0,
        contract.MAX_BATCHED_TOKENS: 512.0,
        contract.STEP_SECONDS: 40.0,
        contract.DRAINING: 0.0,
        contract.MEASURED_READ_RATE: 8e9,
        contract.MEASURED_GEMM_RATE: 4e10,
        contract.MEASURED_STEP_SECONDS: 0.05,
        contract.WEIGHT_BYTES: 538e6,
        contract.KV_BYTES_PER_TOKEN: 46_080.0,
        "kv_total": 4096.0,
        "kv_referenced": 1024.0,
    }
    registry = CollectorRegistry()
    registry.register(_Page({**values, **changes}))
    return generate_latest(registry).decode()


class _Page(Collector):
    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def collect(self) -> list[Metric]:
        values = dict(self._values)
        states = {state: values.pop(f"kv_{state}") for state in ("total", "referenced")}
        families: list[Metric] = [_histogram(name, values.pop(name)) for name in HISTOGRAMS if name in values]
        kv = GaugeMetricFamily(contract.KV_TOKENS, "Tokens.", labels=[contract.LABEL_MODEL, "state"])
        for state, count in states.items():
            kv.add_metric(["m", state], count)
        info = GaugeMetricFamily(contract.ENGINE_INFO, "Engine.", labels=["dtype", "device"])
        info.add_metric(["float32", "cpu"], 1)
        return [*families, kv, info, *(_single(name, value) for name, value in values.items())]


def _single(name: str, value: float) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, "One number.", labels=[contract.LABEL_MODEL])
    family.add_metric(["m"], value)
    return family


def _histogram(name: str, count: float) -> Metric:
    bounds = TOKEN_BOUNDS.get(name, LATENCY_BOUNDS)
    family = HistogramMetricFamily(name, "Distribution.", labels=[contract.LABEL_MODEL])
    buckets = [(str(float(bound)), count * (bound >= 0.5)) for bound in bounds]
    family.add_metric(["m"], [*buckets, ("+Inf", count)], sum_value=count)
    return family


def seconds_to_parse(pages: int) -> float:
    """Processor time of one page, the mean of so many."""
    page = build_page()
    started = time.process_time()
    for number in range(pages):
        engine_page.parse_page(page, at=float(number))
    return (time.process_time() - started) / pages
