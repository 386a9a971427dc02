"""What status says of the blocks that an engine measured, beside those that were planned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo_operator.decide.report import report_plan
from octavo_operator.decide.world import World
from octavo_operator.desired.revision import revision_data
from octavo_operator.shell.engine_reports import EngineReports
from octavo_operator.shell.scrape import Scraper
from tests.octavo_operator.builders import OWNER, make_pod, make_revision, make_target, make_world

REVISION = make_revision()
PLANNED = REVISION.plan.kv_blocks


class ScriptedScraper(Scraper):
    """Answers without a network, and counts how often it was asked."""

    def __init__(self, answer: int | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def measured_blocks(self, pod: Any, port: int) -> int | None:
        self.asked.append(f"{pod.name}:{port}")
        return self.answer


def serving(**changes: Any) -> World:
    pod = make_pod(name="pod-0", revision=REVISION.hash, address="127.0.0.1", ready=True)
    return make_world(**{"selected": REVISION.hash, "pods": (pod,), **changes})


def asked(world: World, answer: int | None = 250) -> tuple[int | None, int]:
    scraper = ScriptedScraper(answer)
    blocks = asyncio.run(EngineReports(scraper).blocks(world, make_target(), now=0.0))
    return blocks, len(scraper.asked)


@pytest.mark.parametrize(
    ("reported", "is_noted"),
    [
        pytest.param(PLANNED, False, id="equal"),
        pytest.param(PLANNED + 7, False, id="2.9 % more"),
        pytest.param(PLANNED - 8, True, id="3.3 % less"),
        pytest.param(2 * PLANNED, True, id="double"),
    ],
)
def test_plan_notes_the_engines_count_when_it_is_off_by_more_than_three_per_cent(
    reported: int, is_noted: bool
) -> None:
    plan = report_plan(REVISION.plan, reported)
    assert plan.engine_reported_blocks == reported
    assert any(f"measured room for {reported} blocks" in note for note in plan.notes) == is_noted


def test_plan_is_as_it_was_when_no_engine_has_reported() -> None:
    assert report_plan(REVISION.plan, None) is REVISION.plan


def test_stored_revision_does_not_hold_what_an_engine_reported() -> None:
    reported = replace(REVISION, plan=report_plan(REVISION.plan, PLANNED))
    assert revision_data(reported) == revision_data(REVISION)
    assert "engineReportedBlocks" not in revision_data(REVISION)["plan"]


def test_engine_is_asked_when_a_pod_of_the_planned_revision_is_ready() -> None:
    assert asked(serving()) == (250, 1)


def test_engine_is_not_asked_again_when_status_has_its_answer() -> None:
    status = make_world().status.model_copy(
        update={
            "update_revision": REVISION.hash,
            "memory_plan": report_plan(REVISION.plan, 240),
        }
    )
    assert asked(serving(status=status)) == (240, 0)
    older = status.model_copy(update={"update_revision": "another"})
    assert asked(serving(status=older)) == (250, 1)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"selected": "another"}, id="another revision serves"),
        pytest.param({"selected": None}, id="none serves"),
        pytest.param({"pods": ()}, id="no pod"),
    ],
)
def test_engine_is_not_asked_when_none_of_the_planned_revision_is_ready(changes: dict[str, Any]) -> None:
    assert asked(serving(**changes)) == (None, 0)


def test_engine_is_left_alone_for_a_while_when_it_did_not_answer() -> None:
    scraper = ScriptedScraper(None)
    reports = EngineReports(scraper)
    for now in (100.0, 130.0, 159.0, 160.0):
        assert asyncio.run(reports.blocks(serving(), make_target(), now=now)) is None
    assert len(scraper.asked) == 2
    reports.forget((OWNER.namespace, OWNER.name))
    asyncio.run(reports.blocks(serving(), make_target(), now=161.0))
    assert len(scraper.asked) == 3


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        pytest.param(f'{contract.MEASURED_KV_BLOCKS}{{model_name="m"}} 1925.0\n', 1925, id="reported"),
        pytest.param("other 1\n", None, id="absent"),
        pytest.param(f"{contract.MEASURED_KV_BLOCKS} NaN\n", None, id="no number"),
        pytest.param(f"{contract.MEASURED_KV_BLOCKS} 1e308\n", None, id="impossible"),
        pytest.param("<html>", None, id="no metrics"),
    ],
)
def test_count_is_read_from_the_engines_metrics(
    text: str, blocks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(self: Scraper, url: str) -> str:
        return text

    async def read() -> int | None:
        scraper = Scraper(clock=lambda: 0.0)
        try:
            return await scraper.measured_blocks(make_pod(address="127.0.0.1"), 8000)
        finally:
            await scraper.close()

    monkeypatch.setattr(Scraper, "_fetch", answer)
    assert asyncio.run(read()) == blocks
