"""The metrics page: all of the contract's names, documented, with values that can be counted along."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo import engine_contract as contract
from octavo_engine.server.histogram import fine_bounds
from tests.octavo_engine.server.running_server import RunningServer
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
METRIC = re.compile(r"(vllm:|octavo_)\w+")
NAMES = sorted(
    value for value in vars(contract).values() if isinstance(value, str) and METRIC.fullmatch(value)
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = write_tiny_model(tmp_path_factory.mktemp("llama"))
    with tiny_server(folder, num_kv_blocks=32, max_adapters=1, planned_kv_blocks=40) as running:
        yield running


def page(server: RunningServer) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples by name and labels, as Prometheus' own parser reads them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(server.http.get(contract.METRICS_PATH).text)
        for sample in family.samples
    }


def test_page_has_every_metric_of_the_contract(server: RunningServer) -> None:
    sampled = {name for name, _ in page(server)}
    assert len(NAMES) > 35
    assert [name for name in NAMES if not {name, f"{name}_bucket"} & sampled] == []


def test_reference_names_every_metric_and_no_other() -> None:
    listed = {match[0] for match in METRIC.finditer(REFERENCE.read_text())}
    assert sorted(listed) == NAMES


def test_page_has_no_metric_outside_of_the_contract(server: RunningServer) -> None:
    suffix = re.compile(r"_(bucket|count|sum)$")
    assert {suffix.sub("", name) for name, _ in page(server)} == set(NAMES)


def test_sizes_and_measured_speed_are_on_the_page(server: RunningServer) -> None:
    assert server.metric(contract.KV_TOKENS, state="total") == 32 * 16
    assert server.metric(contract.MAX_BATCHED_TOKENS) == 512
    assert server.metric(contract.MAX_SEQUENCES) == 8
    assert server.metric(contract.KV_BYTES_PER_TOKEN) == 4 * 2 * 2 * 16 * 4
    for name in (contract.MEASURED_READ_RATE, contract.MEASURED_GEMM_RATE, contract.MEASURED_STEP_SECONDS):
        assert server.metric(name) > 0


def test_uncached_prompt_tokens_are_a_histogram_with_squares(server: RunningServer) -> None:
    def numbers() -> list[float]:
        name = contract.UNCACHED_PROMPT_TOKENS
        return [
            server.metric(f"{name}_bucket", le="16.0"),
            server.metric(f"{name}_bucket", le="48.0"),
            server.metric(f"{name}_count"),
            server.metric(f"{name}_sum"),
            server.metric(contract.UNCACHED_PROMPT_TOKENS_SQUARED),
        ]

    before = numbers()
    server.complete(prompt=list(range(100, 140)), max_tokens=1)  # 40
    server.complete(prompt=list(range(100, 140)), max_tokens=1)  # 8: two blocks of 16 are cached
    assert [now - then for now, then in zip(numbers(), before, strict=True)] == [1, 2, 2, 48, 1664]


def test_gauges_return_to_zero_and_the_prefix_stays_cached(server: RunningServer) -> None:
    server.complete(prompt=list(range(200, 240)), max_tokens=2)
    assert server.metric(contract.KV_TOKENS, state="referenced") == 0
    assert server.metric(contract.KV_TOKENS, state="cached") >= 32
    assert server.metric(contract.KV_CACHE_USAGE) == 0


def test_fine_bounds_are_at_most_a_tenth_apart_from_10_ms_to_40_s() -> None:
    bounds = fine_bounds()
    assert (bounds[0], bounds[-1]) == (0.01, 40.0)
    assert all(1 < after / before < 1.102 for before, after in itertools.pairwise(bounds))
