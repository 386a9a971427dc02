"""Engines are read: every number by its name, in time, and what cannot be true is unknown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo import engine_contract as contract
from octavo_operator.decide.scaling import EngineReading, Reading, Unknown
from octavo_operator.decide.scaling.readings import NOTHING_COUNTED
from octavo_operator.shell.engine_page import parse_page
from octavo_operator.shell.exposition import read_samples
from octavo_operator.shell.scrape import ROUND_SECONDS, Scraper
from tests.octavo_operator.builders import make_pod
from tests.octavo_operator.shell.engine_pages import build_page, seconds_to_parse

PAGE = build_page()
RUNNING = contract.NUM_REQUESTS_RUNNING


def read(page: str) -> EngineReading:
    reading = parse_page(page, at=7.0)
    assert isinstance(reading, EngineReading), reading
    return reading


def test_page_gives_every_number_of_the_contract() -> None:
    reading = read(PAGE)
    assert (reading.at, reading.running, reading.waiting, reading.max_sequences) == (7.0, 3, 2, 8)
    assert (reading.kv_tokens_total, reading.kv_tokens_referenced) == (4096, 1024)
    assert (reading.steps.steps, reading.steps.seconds, reading.max_step_tokens) == (1000, 40, 512)
    assert reading.ttft.total == 1000
    assert reading.ttft.bounds[0] == 0.01
    assert reading.prompts.bounds == tuple(map(float, contract.UNCACHED_PROMPT_BOUNDS))
    assert not reading.draining


def test_page_of_a_cpu_engine_gives_the_prior_that_it_measured() -> None:
    prior = read(PAGE).prior
    assert prior is not None
    assert prior.base_seconds == pytest.approx(538e6 / 8e9 + 0.001), "more than the measured 50 ms"
    assert prior.prefill_token_seconds == pytest.approx(2 * 538e6 / 4 / 4e10), "two operations a parameter"
    assert prior.context_token_seconds == pytest.approx(46_080 / 8e9)


def test_page_of_an_engine_that_does_not_tell_its_outputs_yet_is_read_all_the_same() -> None:
    name = contract.OUTPUT_TOKENS
    assert read(PAGE).outputs.bounds == tuple(map(float, contract.OUTPUT_BOUNDS))
    older = [line for line in PAGE.splitlines() if name not in line]
    assert read("\n".join(older)).outputs == NOTHING_COUNTED
    broken = PAGE.replace(f'{name}_bucket{{le="+Inf",model_name="m"}} 1000.0', "")
    assert broken != PAGE
    assert isinstance(parse_page(broken, at=7.0), Unknown)


def test_page_without_measurements_gives_no_prior() -> None:
    lines = [line for line in PAGE.splitlines() if contract.MEASURED_READ_RATE not in line]
    assert read("\n".join(lines)).prior is None


def test_counters_are_summed_over_their_reasons() -> None:
    name = contract.REQUESTS_FINISHED
    page = PAGE.replace(
        f'{name}{{model_name="m"}} 1000.0',
        f'{name}{{model_name="m",reason="stop"}} 900\n{name}{{model_name="m",reason="abort"}} 7',
    )
    assert read(page).finished == 907


@pytest.mark.parametrize(
    ("page", "said"),
    [
        pytest.param("", "is not reported", id="empty"),
        pytest.param("other 1\n", "is not reported", id="of something else"),
        pytest.param("<html>502 Bad Gateway</html>", "is not reported", id="no metrics at all"),
        pytest.param(
            PAGE.replace(contract.NUM_REQUESTS_WAITING, "vllm:num_requests_waitng"),
            f"{contract.NUM_REQUESTS_WAITING} is not reported", id="a misspelt name",
        ),
        pytest.param(build_page(**{RUNNING: float("nan")}), "is nan", id="not a number"),
        pytest.param(build_page(**{RUNNING: float("inf")}), "is inf", id="infinite"),
        pytest.param(build_page(**{RUNNING: float("-inf")}), "is -inf", id="minus infinite"),
        pytest.param(build_page(**{RUNNING: -5.0}), "is -5", id="negative"),
        pytest.param(PAGE.replace(' 3.0\n', ' three\n'), "three", id="no number"),
        pytest.param(PAGE[: PAGE.index("+Inf")], "", id="cut off in a histogram"),
        pytest.param(PAGE[: PAGE.index("\n", len(PAGE) // 2) + 1], "is not reported", id="half of a page"),
        pytest.param(build_page(kv_total=float("nan")), "is nan", id="no size of the cache"),
    ],
)  # fmt: skip
def test_page_is_unknown_when_a_number_cannot_be_true(page: str, said: str) -> None:
    reading = parse_page(page, at=0.0)
    assert isinstance(reading, Unknown)
    assert said in reading.reason


def test_page_is_unknown_when_a_histogram_falls() -> None:
    lines = PAGE.splitlines()
    index = max(n for n, line in enumerate(lines) if line.startswith(f"{contract.TTFT_SECONDS}_bucket"))
    lines[index - 1] = lines[index - 1].rpartition(" ")[0] + " 5000"
    reading = parse_page("\n".join(lines), at=0.0)
    assert isinstance(reading, Unknown)
    assert "falls" in reading.reason


def test_samples_are_read_when_labels_hold_what_looks_like_the_end() -> None:
    text = 'up{name="a} 5",quote="\\""} 1 1700000000\nup 2\nuptime 9'
    assert read_samples(text, {"up"}) == {"up": [('name="a} 5",quote="\\""', 1.0), ("", 2.0)]}


def test_page_is_parsed_in_a_fraction_of_what_a_round_has() -> None:
    """500 pods in 10 seconds leave 20 ms for each; reading the text must be a small part of that."""
    assert seconds_to_parse(50) < 0.005


# Over the network -------------------------------------------------------------------------------------


class Engine(BaseHTTPRequestHandler):
    """127.0.0.1 answers, .2 hangs, .3 sends without end, .4 says 503."""

    def do_GET(self) -> None:
        host = self.headers["Host"].partition(":")[0]
        if host == "127.0.0.3":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 2**21)
            return
        if host == "127.0.0.2":
            time.sleep(8)
        self.send_response(503 if host == "127.0.0.4" else 200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that did not wait for the end is what these tests are about."""


@contextmanager
def engines() -> Iterator[int]:
    """The port on which four addresses listen."""
    first = Listening(("127.0.0.1", 0), Engine)
    others = [Listening((f"127.0.0.{n}", first.server_port), Engine) for n in (2, 3, 4)]
    servers = [first, *others]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield first.server_port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def scrape(addresses: list[int], port: int) -> tuple[dict[str, Reading], float]:
    pods = [make_pod(name=f"pod-{n}", address=f"127.0.0.{last}") for n, last in enumerate(addresses)]

    async def ask() -> dict[str, Reading]:
        scraper = Scraper(clock=lambda: 7.0)
        try:
            return await scraper.read(pods, port)
        finally:
            await scraper.close()

    started = time.monotonic()
    readings = asyncio.run(ask())
    return readings, time.monotonic() - started


def test_scraper_reads_all_pods_within_one_time_limit() -> None:
    with engines() as port:
        readings, took = scrape([1, 1, 2, 2, 3, 4, 5], port)
    answered = {name for name, reading in readings.items() if isinstance(reading, EngineReading)}
    reasons = {name: one.reason for name, one in readings.items() if isinstance(one, Unknown)}
    assert answered == {"pod-0", "pod-1"}
    assert "longer than" in reasons["pod-4"]
    assert "503" in reasons["pod-5"]
    assert "ConnectError" in reasons["pod-6"]
    assert took < 4.5, "the pods are asked at once, not one after the other"


def test_scraper_ends_its_round_when_more_pods_hang_than_can_be_asked_at_once() -> None:
    with engines() as port:
        readings, took = scrape([2] * 80 + [1], port)
    assert took < ROUND_SECONDS + 1.5
    assert all(isinstance(one, Unknown) for name, one in readings.items() if name != "pod-80")
    assert len(readings) == 81


def test_scraper_reads_nothing_when_there_is_no_pod() -> None:
    assert scrape([], 1)[0] == {}
