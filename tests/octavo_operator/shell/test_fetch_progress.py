"""Progress of a fetch, read from the pod that fetches."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo_operator.decide.world import World
from octavo_operator.shell.fetch_progress import INTERVAL_SECONDS, FetchProgress
from tests.octavo_operator.builders import make_container, make_pod, make_revision, make_target, make_world

FETCHING = make_container(name="fetch", running=True)
REVISION = make_revision().hash


class Fetcher(ThreadingHTTPServer):
    """A pod that says how far it is."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.content = b""
        self.asked = 0


class Answers(BaseHTTPRequestHandler):
    server: Fetcher

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200 if self.path == "/progress" else 404)
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    server = Fetcher()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def world_of(*addresses: str, **pod: object) -> World:
    pods = (
        make_pod(REVISION, name=f"chat-{number}", address=address, containers=(FETCHING,), **pod)
        for number, address in enumerate(addresses)
    )
    return make_world(pods=tuple(pods))


def read_at(fetcher: Fetcher, world: World, *times: float) -> list[tuple[str, float | None]]:
    async def run() -> list[tuple[str, float | None]]:
        progress = FetchProgress(port=fetcher.server_port)
        try:
            return [await progress.read(world, make_target(), now=now) for now in times]
        finally:
            await progress.close()

    return asyncio.run(run())


def test_words_stay_the_same_for_a_while(fetcher: Fetcher) -> None:
    fetcher.content = json.dumps({"bytes_done": 2**30, "bytes_total": 4 * 2**30}).encode()
    first, again, later = read_at(fetcher, world_of("127.0.0.1"), 0.0, INTERVAL_SECONDS - 1, INTERVAL_SECONDS)
    assert first == again == later == ("fetching 1.00 GiB of 4.00 GiB (25 %)", INTERVAL_SECONDS)
    assert fetcher.asked == 2


@pytest.mark.parametrize("content", [b"", b"[]", b"x" * 10_000], ids=["nothing", "a list", "too much"])
def test_pod_that_talks_nonsense_is_left_out(fetcher: Fetcher, content: bytes) -> None:
    fetcher.content = content
    assert read_at(fetcher, world_of("127.0.0.1"), 0.0) == [("", INTERVAL_SECONDS)]


def test_pod_that_does_not_answer_holds_nobody_up(fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo_operator.shell.fetch_progress.TIMEOUT_SECONDS", 0.3)
    fetcher.content = json.dumps({"bytes_done": 1, "bytes_total": 2}).encode()
    ((words, _),) = read_at(fetcher, world_of("127.0.0.1", "192.0.2.1"), 0.0)
    assert words == "fetching 1 B of 2 B (50 %)"


def test_nobody_is_asked_when_nothing_is_fetched(fetcher: Fetcher) -> None:
    assert read_at(fetcher, world_of("127.0.0.1", ready=True), 0.0) == [("", None)]
    assert read_at(fetcher, make_world(), 0.0) == [("", None)]
    assert fetcher.asked == 0
