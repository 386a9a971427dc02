"""The watch over upstream: one question for many services, a bounded rate, silence when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import Place, Upstream
from octavo_operator.shell import upstream as upstream_module
from octavo_operator.shell.cache import Key
from octavo_operator.shell.upstream import QUESTIONS_AT_ONCE, UpstreamWatch

MAIN: Place = ("hf://organization/model", "main")
V1: Place = ("hf://organization/model", "v1")
OUTAGE = Refusal(reason="HubUnavailable", message="unreachable", lasting=False)
KEYS: list[Key] = [("prod", f"service-{number}") for number in range(1000)]


@dataclass
class Play:
    """A hub with an answer for each revision, and a clock that the test turns."""

    answers: dict[str, str | Refusal] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    told: list[Key] = field(default_factory=list)
    now: float = 0.0
    held: asyncio.Event | None = None
    at_once: int = 0
    most_at_once: int = 0

    async def ask(self, repository: str, revision: str) -> str | Refusal:
        assert repository == "organization/model"
        self.asked.append(revision)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.held is not None:
            await self.held.wait()
        self.at_once -= 1
        return self.answers[revision]

    def watch(self, interval: float = 300.0, jitter: float = 0.0) -> UpstreamWatch:
        return UpstreamWatch(
            ask=self.ask,
            tell=self.told.append,
            interval_seconds=interval,
            draw_jitter=lambda: jitter,
            clock=lambda: self.now,
        )

    async def run(self, watch: UpstreamWatch, script: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(watch.run())
        try:
            await script()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "GAP_SECONDS", 0.0)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_thousand_services_with_the_same_words_are_one_question() -> None:
    play = Play(answers={"main": "a" * 40})
    watch = play.watch()

    async def script() -> None:
        for key in KEYS:
            assert watch.watch(key, MAIN) is None
        await settle()
        assert play.asked == ["main"]
        assert sorted(play.told) == sorted(KEYS)
        assert watch.watch(KEYS[0], MAIN) == Upstream(commit="a" * 40)

    asyncio.run(play.run(watch, script))


def test_question_comes_again_after_the_interval_and_only_a_move_is_told() -> None:
    play = Play(answers={"main": "a" * 40})
    watch = play.watch(interval=0.02)

    async def script() -> None:
        watch.watch(KEYS[0], MAIN)
        await settle()
        play.told.clear()
        await turn(play, 0.02)
        assert (play.asked, play.told) == (["main"] * 2, [])
        play.answers["main"] = "b" * 40
        await turn(play, 0.02)
        assert (play.asked, play.told) == (["main"] * 3, [KEYS[0]])

    asyncio.run(play.run(watch, script))


async def turn(play: Play, seconds: float) -> None:
    """The play's clock and the loop's."""
    play.now += seconds
    await asyncio.sleep(seconds * 1.5)
    await settle()


def test_outage_is_asked_less_often_and_told_nobody() -> None:
    play = Play(answers={"main": "a" * 40})
    watch = play.watch(interval=0.02)

    async def script() -> None:
        watch.watch(KEYS[0], MAIN)
        await settle()
        play.told.clear()
        play.answers["main"] = OUTAGE
        for _ in range(8):
            await turn(play, 0.02)
        assert len(play.asked) == 4, "after 1, 3 and 7 intervals"
        assert play.told == []
        assert watch.watch(KEYS[0], MAIN) == Upstream(commit="a" * 40, refusal=OUTAGE)

    asyncio.run(play.run(watch, script))


def test_hub_that_does_not_answer_gets_few_questions_at_once() -> None:
    play = Play(answers={f"v{number}": "a" * 40 for number in range(100)})
    watch = play.watch()

    async def script() -> None:
        play.held = asyncio.Event()
        for number, key in enumerate(KEYS[:100]):
            watch.watch(key, (MAIN[0], f"v{number}"))
        await settle()
        assert play.most_at_once == QUESTIONS_AT_ONCE
        play.held.set()
        for _ in range(20):
            await settle()
        assert len(play.asked) == 100
        assert play.most_at_once == QUESTIONS_AT_ONCE

    asyncio.run(play.run(watch, script))


def test_first_question_waits_so_that_a_start_is_no_storm() -> None:
    play = Play(answers={"main": "a" * 40})
    watch = play.watch(interval=300.0, jitter=0.5)

    async def script() -> None:
        watch.watch(KEYS[0], MAIN)
        await settle()
        assert play.asked == []

    asyncio.run(play.run(watch, script))


def test_words_that_nobody_uses_any_more_are_forgotten() -> None:
    play = Play(answers={"main": "a" * 40, "v1": "b" * 40})
    watch = play.watch(jitter=0.5)
    watch.watch(KEYS[0], MAIN)
    watch.watch(KEYS[1], MAIN)
    watch.watch(KEYS[0], V1)
    assert watch.size() == 2
    watch.forget(KEYS[1])
    assert watch.size() == 1
    watch.watch(KEYS[0], None)
    watch.forget(KEYS[0])
    assert watch.size() == 0
    watch.learn(MAIN, "a" * 40)
    assert watch.size() == 0, "the service was deleted while the hub was asked"


def test_answer_that_somebody_else_got_saves_a_question() -> None:
    play = Play(answers={"main": "b" * 40})
    watch = play.watch(jitter=0.5)
    watch.watch(KEYS[0], MAIN)
    watch.learn(MAIN, "b" * 40)
    assert watch.watch(KEYS[0], MAIN) == Upstream(commit="b" * 40)


def test_nothing_is_asked_when_the_interval_is_zero() -> None:
    play = Play()
    watch = play.watch(interval=0.0)

    async def script() -> None:
        assert watch.watch(KEYS[0], MAIN) is None
        watch.learn(MAIN, "a" * 40)
        await settle()
        assert (play.asked, watch.size()) == ([], 0)

    asyncio.run(play.run(watch, script))


def test_question_that_fails_in_an_unknown_way_does_not_end_the_watch() -> None:
    play = Play()
    watch = play.watch(interval=0.02)

    async def script() -> None:
        watch.watch(KEYS[0], MAIN)
        await settle()
        assert play.asked == ["main"], "KeyError: it has no answer"
        play.answers["main"] = "a" * 40
        await turn(play, 0.05)
        assert watch.watch(KEYS[0], MAIN) == Upstream(commit="a" * 40)

    asyncio.run(play.run(watch, script))
