"""`GET /progress` on the pod's address while a fetch runs, for who wants to say how far a replica is."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from octavo.engine_contract import FETCH_PROGRESS_PATH
from octavo_engine.fetching.progress import Progress

logger = logging.getLogger(__name__)

CLIENT_TIMEOUT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1
"""How soon the server notices that the fetch is over."""


@contextmanager
def progress_served(progress: Progress, port: int | None) -> Iterator[None]:
    """Serve until the block ends; a port that cannot be had is said and is no reason not to fetch."""
    if port is None:
        yield
        return
    try:
        server = _ProgressServer(port, progress)
    except OSError as error:
        logger.warning("port %d: progress is not served: %s", port, error.strerror)
        yield
        return
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_SECONDS,), name="fetch-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _ProgressServer(ThreadingHTTPServer):
    """On every address of the pod, IPv6 too where there is any."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, progress: Progress) -> None:
        self.progress = progress
        super().__init__(("", port), _Answer)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Answer(BaseHTTPRequestHandler):
    server: _ProgressServer
    timeout = CLIENT_TIMEOUT_SECONDS

    def do_GET(self) -> None:
        if self.path != FETCH_PROGRESS_PATH:
            self.send_error(404)
            return
        content = json.dumps(asdict(self.server.progress.measure())).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing: one line for each question would bury the fetch's own."""
