"""The API server's client: listings by pages, and how many requests are under way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo_operator.shell import kube as kube_module
from octavo_operator.shell.kinds import PODS
from octavo_operator.shell.kube import ApiRefused, Kube


class Answer:
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body = body

    async def read(self) -> bytes:
        return json.dumps(self.body).encode()


class FakeApi:
    """Answers in turn, each after the others have had time to come."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.queries: list[dict[str, str]] = []
        self.under_way = self.most_under_way = 0

    async def param_serialize(
        self, *_: object, query_params: list[tuple[str, str]], **__: object
    ) -> tuple[()]:
        self.queries.append(dict(query_params))
        return ()

    async def call_api(self, *_: object, **__: object) -> Answer:
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        await asyncio.sleep(0.001)
        self.under_way -= 1
        return self.answers.pop(0)


def page(name: str, more: str) -> Answer:
    return Answer(200, {"metadata": {"resourceVersion": "7", "continue": more}, "items": [{"name": name}]})


def make_kube(api: Any) -> Kube:
    return Kube(api)


async def list_names(kube: Kube) -> list[str]:
    pages = [one async for one in kube.list_all(PODS, "prod", "a=b")]
    assert {one.version for one in pages} == {"7"}
    return [item["name"] for one in pages for item in one.items]


def test_listing_goes_on_until_no_page_is_left() -> None:
    api = FakeApi(page("a", "next"), page("b", "last"), page("c", ""))
    assert asyncio.run(list_names(make_kube(api))) == ["a", "b", "c"]
    assert [query.get("continue") for query in api.queries] == [None, "next", "last"]
    assert {query["labelSelector"] for query in api.queries} == {"a=b"}
    assert {query["limit"] for query in api.queries} == {"100"}


def test_listing_that_took_too_long_is_refused_as_a_whole() -> None:
    """Its next page is too old; half a listing must never pass for a whole one."""
    api = FakeApi(page("a", "next"), Answer(410, {"message": "the continue token is too old"}))
    with pytest.raises(ApiRefused, match="too old"):
        asyncio.run(list_names(make_kube(api)))


def test_thousand_writes_at_once_do_not_wait_at_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it has not answered in time would be asked again, and make it slower still."""
    monkeypatch.setattr(kube_module, "MOST_AT_ONCE", 4)
    api = FakeApi(*(Answer(200, {}) for _ in range(40)))

    async def run() -> None:
        kube = make_kube(api)
        await asyncio.gather(*(kube.read(PODS, "prod", str(number)) for number in range(40)))

    asyncio.run(run())
    assert api.answers == []
    assert api.most_under_way == 4


def test_lease_is_renewed_while_a_thousand_writes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_module, "MOST_AT_ONCE", 2)
    api = FakeApi(*(Answer(200, {}) for _ in range(41)))
    ended: list[str] = []

    async def ask(kube: Kube, name: str) -> None:
        await kube.read(PODS, "prod", name)
        ended.append(name)

    async def run() -> None:
        kube = make_kube(api)
        apart = kube.apart()
        await asyncio.gather(*(ask(kube, "write") for _ in range(40)), ask(apart, "lease"))

    asyncio.run(run())
    assert "lease" in ended[:3]
