"""A client that does not read its stream holds up nobody: no sequence, no other client, no shutdown."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import httpx

from octavo_engine.memory import MIB, resident_bytes
from octavo_engine.server.lifecycle import DrainTimes
from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import MODEL, RunningServer, eventually, parse_event

PIECE = b"many words " * 800
NUM_TOKENS = 1000


@contextlib.contextmanager
def reader_that_stalls(server: RunningServer) -> Iterator[socket.socket]:
    """Asks for a stream of some 9 MB, far more than the buffers on the way hold, and reads none of it."""
    body = {"model": MODEL, "prompt": "a", "max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    url = httpx.URL(server.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((url.host, url.port))
        connection.sendall(head.encode() + content)
        yield connection


def start(start_server: StartServer, **options: object) -> RunningServer:
    return start_server([PIECE], ends=False, step_seconds=0.0005, options=options or None)


def test_others_are_answered_and_the_sequence_ends(start_server: StartServer) -> None:
    server = start(start_server)
    before = resident_bytes()
    with reader_that_stalls(server):
        eventually(lambda: server.engine.num_generated > 0)
        assert server.complete(max_tokens=2).status_code == 200
        eventually(lambda: not server.engine.has_work())
        assert server.metric("octavo_kv_blocks", state="referenced") == 0
        assert resident_bytes() - before < 100 * MIB
        assert server.complete(max_tokens=2).status_code == 200
    assert server.metric("octavo_requests_finished_total", reason="length") == 3


def test_reader_that_stalled_gets_all_of_it_when_it_goes_on(start_server: StartServer) -> None:
    server = start(start_server)
    with reader_that_stalls(server) as connection:
        eventually(lambda: server.engine.num_generated == NUM_TOKENS)
        time.sleep(0.2)
        received = bytearray()
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(1 << 16)
    lines = [line for line in received.decode().splitlines() if line.startswith("data: ")]
    *events, done = [parse_event(line) for line in lines]
    assert done == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events) == PIECE.decode() * NUM_TOKENS


def test_shutdown_does_not_wait_for_a_reader_that_stalls(start_server: StartServer) -> None:
    server = start(start_server, drain=DrainTimes(accept_seconds=0, shutdown_seconds=0.5))
    with reader_that_stalls(server):
        eventually(lambda: server.engine.num_generated == NUM_TOKENS)
        server.interrupt()
        server.thread.join(15)
        assert not server.thread.is_alive()
