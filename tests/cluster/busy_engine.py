"""An engine's metrics page, with as many requests as a test says; every pod of the test has its address."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from octavo import engine_contract as contract
from tests.octavo_operator.shell.engine_pages import build_page

PROMPT_TOKENS, OUTPUT_TOKENS = 100, 20


class BusyEngine(ThreadingHTTPServer):
    """Counters that go on while requests come."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Metrics)
        self.rate = 0.0
        """Requests a second of each pod."""
        self._served = 0.0
        self._seen_at = time.monotonic()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page(self) -> str:
        with self._lock:
            now = time.monotonic()
            self._served += self.rate * (now - self._seen_at)
            self._seen_at = now
            served = self._served
        counted = dict.fromkeys(
            (contract.REQUESTS_ARRIVED, contract.REQUESTS_ADMITTED, contract.REQUESTS_FINISHED), served
        )
        histograms = (contract.UNCACHED_PROMPT_TOKENS, contract.TTFT_SECONDS, contract.TPOT_SECONDS)
        changes = {
            **counted,
            **dict.fromkeys(histograms, served),
            contract.PROMPT_TOKENS: served * PROMPT_TOKENS,
            contract.GENERATION_TOKENS: served * OUTPUT_TOKENS,
            contract.CACHED_PROMPT_TOKENS: 0.0,
            contract.RECOMPUTED_TOKENS: 0.0,
            contract.NUM_PREEMPTIONS: 0.0,
            contract.NUM_REQUESTS_RUNNING: min(8.0, self.rate),
            contract.NUM_REQUESTS_WAITING: 0.0,
            "kv_referenced": min(8.0, self.rate) * PROMPT_TOKENS,
        }
        return build_page(**changes)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Metrics(BaseHTTPRequestHandler):
    server: BusyEngine

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.page().encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass
