"""The hub's sockets: reads requests, streams replies, writes each request into the store's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from tests.support.model_hub.answers import FileBody, Reply, Request, answer
from tests.support.model_hub.store import HubStore, Weather
from tests.support.model_hub.traffic import LoggedRequest, log_request

CHUNK_BYTES: Final = 1 << 18
POLL_SECONDS: Final = 0.05
"""How soon a hub notices that it should end."""
PAGE_SIZE: Final = 1000
"""Entries of a tree that the public hub lists on one page."""


class ModelHub:
    """A hub over `store`; as a context manager it listens and serves until the block ends.

    with ModelHub(store) as hub:
        HfApi(endpoint=hub.endpoint).list_repo_refs("organization/name")
    """

    def __init__(
        self, store: HubStore, *, host: str = "127.0.0.1", port: int = 0, page_size: int = PAGE_SIZE
    ) -> None:
        self.store = store
        self._server = _HubServer((host, port), store, page_size)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="model-hub", daemon=True
        )

    @property
    def endpoint(self) -> str:
        """What `HF_ENDPOINT` must be."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _HubServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], store: HubStore, page_size: int) -> None:
        self.store = store
        self.page_size = page_size
        super().__init__(address, _Exchange)


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "OctavoModelHub"
    server: _HubServer

    def do_GET(self) -> None:
        self._exchange()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _exchange(self) -> None:
        store = self.server.store
        request = self._read()
        time.sleep(store.weather().delay_seconds)
        reply = answer(store, request, page_size=self.server.page_size)
        log_request(store, LoggedRequest.of(request, reply))
        self._send(reply, store.weather())

    def _read(self) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        return Request(method=self.command, target=self.path, headers=headers, body=body)

    def _send(self, reply: Reply, weather: Weather) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        length = reply.body.length if isinstance(reply.body, FileBody) else len(reply.body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self._send_body(reply.body, weather)
        except ConnectionError:  # the client left, as it may
            self.close_connection = True

    def _send_body(self, body: bytes | FileBody, weather: Weather) -> None:
        speed, left = weather.bytes_per_second, weather.drop_after_bytes
        if isinstance(body, FileBody) and not body.corrupt and speed is None and left is None:
            with body.path.open("rb") as file:
                self.connection.sendfile(file, body.start, body.length)
            return
        for chunk in [body] if isinstance(body, bytes) else read_span(body):
            if speed is not None:
                time.sleep(len(chunk) / speed)
            if isinstance(body, FileBody) and left is not None and len(chunk) > left:
                self.wfile.write(chunk[:left])
                raise ConnectionAbortedError("as the weather has it")
            left = None if left is None else left - len(chunk)
            self.wfile.write(chunk)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing on stderr: the store's log has every request."""


def read_span(body: FileBody) -> Iterator[bytes]:
    with body.path.open("rb") as file:
        file.seek(body.start)
        left = body.length
        while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
            if body.corrupt and file.tell() == len(chunk):  # the chunk with the file's first byte
                chunk = bytes([chunk[0] ^ 0xFF]) + chunk[1:]
            left -= len(chunk)
            yield chunk
