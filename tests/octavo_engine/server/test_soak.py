"""Thousands of clients of all manners against a small pool: everything ends, and comes back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from octavo import engine_contract as contract
from octavo_engine.memory import MIB
from tests.octavo_engine.oracle import save_tiny_model
from tests.octavo_engine.server.running_server import (
    RunningServer,
    eventually,
    write_text_files,
)
from tests.octavo_engine.server.served_process import anonymous_bytes, num_open_files, serve_process
from tests.octavo_engine.server.soak_client import LEAVING, MANNERS, STAYING, Caller, Got, Manner
from tests.octavo_engine.server.tiny_model import VOCAB_SIZE, trained_tokenizer

NUM_KINDS = 60
AT_ONCE = 24
NUM_BLOCKS = 14
SPARE_FILES = 8
FLAGS = (
    *("--planned-kv-blocks", str(NUM_BLOCKS), "--max-num-seqs", "16", "--max-num-batched-tokens", "64"),
    *("--max-model-len", "160", "--shutdown-timeout", "5", "--drain-accept-seconds", "0"),
    *("--speculative-ngram", "2", "--log-requests", "off"),
)


def kinds(random: Random) -> list[dict[str, Any]]:
    """Different requests: shared and own prefixes, greedy and seeded, short and long, one choice and two."""
    prefix = [random.randint(3, VOCAB_SIZE - 1) for _ in range(40)]
    asked = [
        {
            **_question(random, prefix),
            "max_tokens": random.choice([1, 2, 3, 5, 8, 60]),
            "n": random.choice([1, 1, 1, 2]),
            "seed": number,
            **random.choice([{"temperature": 0}, {"temperature": 1.0, "top_p": 0.9}, {"top_k": 20}]),
        }
        for number in range(NUM_KINDS)
    ]
    return [{**body, **_form(random)} for body in asked]


def _question(random: Random, prefix: list[int]) -> dict[str, Any]:
    if random.random() < 0.2:
        return {"messages": [{"role": "user", "content": "Katze " * random.randint(1, 4)}]}
    own = [random.randint(3, VOCAB_SIZE - 1) for _ in range(random.randint(1, 30))]
    return {"prompt": prefix[: random.choice([0, 16, 40])] + own}


def _form(random: Random) -> dict[str, Any]:
    """Bound by a grammar, free with an end, or free without one."""
    if random.random() < 0.15:
        return {"structured_outputs": {"regex": "[a-z]{2,9}( [0-9]+)?"}}
    return {"ignore_eos": random.random() < 0.8}


@dataclass
class Soak:
    """Calls in random manners, and what came of them."""

    caller: Caller
    choices: list[dict[str, Any]]
    alone: list[dict[int, str]]
    random: Random
    num_calls: Counter[Manner] = field(default_factory=Counter)

    async def run(self, num_requests: int) -> None:
        """So many more, `AT_ONCE` at a time."""
        todo = iter(range(num_requests))

        async def work() -> None:
            for _ in todo:
                await self._one()

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def _one(self) -> None:
        kind, manner = self.random.randrange(NUM_KINDS), self.random.choice(MANNERS)
        body = {**self.choices[kind], "stream": self.random.random() < 0.5}
        moments = Random(self.random.random())
        got = await self.caller.call(body, manner, moments)
        self.num_calls[manner] += 1
        self._check(got, manner, self.alone[kind])

    def _check(self, got: Got, manner: Manner, alone: dict[int, str]) -> None:
        if manner is Manner.SAYS_NONSENSE:
            assert got.status == 400
        elif manner in STAYING:
            assert (got.status, got.is_whole, got.texts) == (200, True, alone)
        else:
            assert got.status in (200, None)
            assert all(alone[index].startswith(text) for index, text in got.texts.items())


@dataclass(frozen=True)
class Served:
    """The server under test."""

    process: subprocess.Popen[str]
    http: httpx.Client

    def metric(self, name: str, **labels: str) -> float:
        return RunningServer.metric(self, name, **labels)  # type: ignore[arg-type]

    def is_idle(self) -> bool:
        gauges = (contract.NUM_REQUESTS_RUNNING, contract.NUM_REQUESTS_WAITING, contract.KV_CACHE_USAGE)
        return all(self.metric(name) == 0 for name in gauges)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    save_tiny_model(
        tmp_path, num_hidden_layers=1, hidden_size=32, intermediate_size=32, vocab_size=VOCAB_SIZE
    )
    write_text_files(tmp_path, trained_tokenizer())
    with serve_process(tmp_path, *FLAGS) as (process, http):
        yield Served(process, http)


async def texts_alone(caller: Caller, choices: list[dict[str, Any]]) -> list[dict[int, str]]:
    got = [await caller.call(body, Manner.STAYS, Random(0)) for body in choices]
    assert all(answer.is_whole and answer.status == 200 for answer in got), got
    return [answer.texts for answer in got]


async def soak_in_two_parts(served: Served, num_requests: int) -> tuple[Soak, int, int]:
    """The soak, the growth of memory and that of open files over its last four fifths."""
    url = served.http.base_url
    caller, choices = Caller(url.host, url.port or 0), kinds(Random(1))
    soak = Soak(caller, choices, await texts_alone(caller, choices), Random(2))
    await soak.run(num_requests // 5)
    memory, files = anonymous_bytes(served.process.pid), num_open_files(served.process.pid)
    await soak.run(num_requests - num_requests // 5)
    return (
        soak,
        anonymous_bytes(served.process.pid) - memory,
        num_open_files(served.process.pid) - files,
    )


@pytest.mark.parametrize(
    "num_requests", [500, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_everybody_who_stays_gets_the_text_given_alone_and_nothing_is_left_behind(
    served: Served, num_requests: int
) -> None:
    soak, grown_bytes, more_files = asyncio.run(soak_in_two_parts(served, num_requests))
    assert soak.num_calls.total() == num_requests
    assert all(soak.num_calls[manner] > num_requests // 50 for manner in Manner)
    eventually(served.is_idle, within=5)
    assert served.metric(contract.NUM_PREEMPTIONS) > num_requests // 100, "the pool was large enough: void"
    assert served.metric(contract.CACHED_PROMPT_TOKENS) > 0
    assert served.metric(contract.REQUESTS_FINISHED, reason="abort") > num_requests // 50
    assert served.metric(contract.REQUESTS_FINISHED, reason="error") == 0
    blocks = {
        state: served.metric(contract.KV_BLOCKS, state=state)
        for state in ("total", "referenced", "cached", "free")
    }
    assert blocks["total"] == NUM_BLOCKS == blocks["cached"] + blocks["free"]
    assert blocks["referenced"] == 0
    assert grown_bytes < 16 * MIB
    assert more_files < AT_ONCE + SPARE_FILES
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(20) == 0


def test_every_manner_of_leaving_is_among_those_that_are_drawn() -> None:
    assert set(LEAVING) | set(STAYING) | {Manner.SAYS_NONSENSE} == set(MANNERS) == set(Manner)
