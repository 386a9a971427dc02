"""Many requests of all kinds against a pool that preempts, with clients leaving at random moments."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import EngineRequest
from tests.octavo_engine.oracle import generate, load_engine, request, save_tiny_model

NUM_REQUESTS = 2000
NUM_KINDS = 60
MAX_IN_FLIGHT = 24


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


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


def drive(
    engine: LLMEngine, random: Random, choices: list[dict[str, Any]]
) -> tuple[dict[str, Any], set[str]]:
    """Feed the engine until every request has ended; the outputs by name, and who left."""
    outputs: dict[str, list[int]] = {}
    open_names: set[str] = set()
    left: set[str] = set()
    while len(outputs) < NUM_REQUESTS or engine.has_work():
        while len(outputs) < NUM_REQUESTS and len(open_names) < MAX_IN_FLIGHT:
            kind = random.randrange(len(choices))
            name = f"{len(outputs)}:{kind}"
            assert engine.add_request(build(choices[kind], name)) is None
            outputs[name] = []
            open_names.add(name)
        if random.random() < 0.2:
            leaver = random.choice(sorted(open_names))
            engine.abort(leaver)
            open_names.discard(leaver)
            left.add(leaver)
        for event in engine.step(0.0):
            outputs[event.request_id] += event.token_ids
            if event.finish_reason is not None:
                open_names.discard(event.request_id)
        if random.random() < 0.1:
            engine.check_integrity()
    return outputs, left


@pytest.mark.slow
def test_every_request_ends_with_its_own_text_and_the_pool_returns_to_free(model_dir: Path) -> None:
    random = Random(1)
    choices = kinds(random)
    alone = [
        generate(load_engine(model_dir, enable_prefix_caching=False), [build(kind, "alone")])[0]
        for kind in choices
    ]
    engine = load_engine(model_dir, num_kv_blocks=24)
    outputs, left = drive(engine, random, choices)
    stats = engine.stats()
    engine.check_integrity()
    assert stats.preemptions > 0 and stats.cached_prompt_tokens > 0 and len(left) > 50
    assert stats.blocks_referenced == stats.num_running == stats.num_waiting == 0
    assert stats.blocks_free + stats.blocks_cached == stats.blocks_total
    for name, output in outputs.items():
        expected = alone[int(name.split(":")[1])]
        assert output == (expected[: len(output)] if name in left else expected), name
