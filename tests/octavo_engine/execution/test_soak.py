"""Many requests of all kinds against a pool that preempts, with clients leaving at random moments."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from octavo_engine.llm_engine import LLMEngine
from octavo_engine.memory import MIB, resident_bytes
from octavo_engine.requests import EngineRequest
from tests.octavo_engine.oracle import generate, load_engine, request, save_tiny_model

NUM_KINDS = 60
MAX_IN_FLIGHT = 24


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(
        tmp_path_factory.mktemp("llama"), num_hidden_layers=1, hidden_size=32, intermediate_size=32
    )


def kinds(random: Random) -> list[dict[str, Any]]:
    """Different requests: shared and own prefixes, greedy and seeded, short and long."""
    prefix = [random.randint(3, 255) for _ in range(40)]
    return [
        {
            "prompt": prefix[: random.choice([0, 16, 40])]
            + [random.randint(3, 255) for _ in range(random.randint(1, 30))],
            "num_tokens": random.choice([1, 2, 3, 5, 60]),
            **random.choice(
                [
                    {},
                    {"temperature": 1.0, "seed": number, "top_p": 0.9},
                    {"temperature": 0.7, "seed": number, "top_k": 20},
                ]
            ),
        }
        for number in range(NUM_KINDS)
    ]


def build(kind: dict[str, Any], name: str) -> EngineRequest:
    return request(name, **kind)


@dataclass
class Soak:
    """Keeps an engine busy with random kinds of requests, some of which are left by their clients."""

    engine: LLMEngine
    choices: list[dict[str, Any]]
    random: Random
    outputs: dict[str, list[int]] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    def run(self, num_requests: int) -> None:
        """So many requests more, until all have ended."""
        total = len(self.outputs) + num_requests
        while len(self.outputs) < total or self.engine.has_work():
            while len(self.outputs) < total and len(self.in_flight) < MAX_IN_FLIGHT:
                self._add()
            if self.in_flight and self.random.random() < 0.2:
                self._leave()
            for event in self.engine.step(0.0):
                self.outputs[event.request_id] += event.token_ids
                if event.finish_reason is not None:
                    self.in_flight.discard(event.request_id)
            if self.random.random() < 0.05:
                self.engine.check_integrity()

    def _add(self) -> None:
        kind = self.random.randrange(len(self.choices))
        name = f"{len(self.outputs)}:{kind}"
        assert self.engine.add_request(build(self.choices[kind], name)) is None
        self.outputs[name] = []
        self.in_flight.add(name)

    def _leave(self) -> None:
        leaver = self.random.choice(sorted(self.in_flight))
        self.engine.abort(leaver)
        self.in_flight.discard(leaver)
        self.left.add(leaver)

    def assert_all_ended_with_the_text_they_have_alone(self, alone: list[list[int]]) -> None:
        assert not self.in_flight
        for name, output in self.outputs.items():
            expected = alone[int(name.split(":")[1])]
            assert output == (expected[: len(output)] if name in self.left else expected), name

    def assert_engine_is_as_new(self) -> None:
        stats = self.engine.stats()
        self.engine.check_integrity()
        assert stats.blocks_referenced == stats.num_running == stats.num_waiting == 0
        assert stats.blocks_free + stats.blocks_cached == stats.blocks_total


@pytest.fixture(scope="module")
def alone(model_dir: Path) -> list[list[int]]:
    engine = load_engine(model_dir, enable_prefix_caching=False)
    return [generate(engine, [build(kind, "alone")])[0] for kind in kinds(Random(1))]


@pytest.mark.parametrize("drafts", [0, 3], ids=["plain", "drafting"])
@pytest.mark.parametrize("num_requests", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_request_ends_with_its_own_text_and_all_blocks_come_back(
    model_dir: Path, alone: list[list[int]], num_requests: int, drafts: int
) -> None:
    engine = load_engine(model_dir, num_kv_blocks=12, speculative_ngram=drafts)
    soak = Soak(engine, kinds(Random(1)), Random(2))
    soak.run(num_requests // 5)
    resident = resident_bytes()
    soak.run(num_requests - num_requests // 5)
    remembered = 64 * sum(map(len, soak.outputs.values()))  # by this test itself
    assert resident_bytes() - resident < 8 * MIB + remembered
    stats = engine.stats()
    assert stats.preemptions > 0 and stats.cached_prompt_tokens > 0 and len(soak.left) > num_requests // 40
    assert (stats.accepted_draft_tokens > 0) == (drafts > 0)
    soak.assert_engine_is_as_new()
    soak.assert_all_ended_with_the_text_they_have_alone(alone)
