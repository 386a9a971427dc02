"""The work queue: once each, one at a time, again when asked, later when it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.shell.queue import LONGEST_DELAY_SECONDS, WorkQueue, retry_delay


def play(scene: Callable[[WorkQueue[str]], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        queue: WorkQueue[str] = WorkQueue(draw_jitter=lambda: 0.0)
        try:
            await asyncio.wait_for(scene(queue), timeout=5)
        finally:
            queue.close()

    asyncio.run(run())


def test_key_is_taken_once_when_it_is_added_often() -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        for _ in range(3):
            queue.add("a")
        assert await queue.take() == "a"
        assert queue.depth() == 0

    play(scene)


def test_key_comes_again_when_it_is_added_while_being_worked_on() -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add("a")
        key = await queue.take()
        queue.add("a")
        assert queue.depth() == 0, "never two workers on one key"
        queue.done(key)
        assert await queue.take() == "a"
        queue.done("a")
        assert queue.depth() == 0

    play(scene)


def test_earlier_timer_replaces_a_later_one() -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 100)
        queue.add_after("a", 0.01)
        queue.add_after("a", 50)
        assert await queue.take() == "a"

    play(scene)


def test_retries_come_later_and_later_until_one_succeeds() -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        assert [queue.retry("a") for _ in range(3)] == [1.0, 2.0, 4.0]
        queue.succeeded("a")
        assert queue.retry("a") == 1.0

    play(scene)


def test_forgotten_key_does_not_come_back() -> None:
    async def scene(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 0.01)
        queue.forget("a")
        await asyncio.sleep(0.05)
        assert queue.depth() == 0

    play(scene)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_delay_is_bounded_and_grows(failures: int, jitter: float) -> None:
    assert retry_delay(failures, 0) <= retry_delay(failures, jitter) <= 1.5 * LONGEST_DELAY_SECONDS
    assert retry_delay(failures, 0) <= retry_delay(failures + 1, 0)


@pytest.mark.parametrize("failures", [1, 5, 500])
def test_jitter_spreads_what_failed_together(failures: int) -> None:
    assert retry_delay(failures, 0.0) < retry_delay(failures, 1.0)
