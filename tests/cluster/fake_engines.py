"""Engines as far as the operator asks them: what they loaded, their metrics, greedy answers.

A light cluster has no node, so no pod has an address. Each of these listens on an address of its own in
127.0.0.0/8, which the play's author writes into the pod's status.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass
class Script:
    """How the engines of one commit behave; an ordinary one by default."""

    loaded: str = ""
    """Another commit than it was told to load."""
    answers: dict[str, str] = field(default_factory=dict)
    """By prompt; any other prompt is answered with the commit."""
    metrics: Callable[[], str] | str = ""
    """The page, or what makes it; without one there is none."""
    silent: bool = False
    """It answers nothing but errors."""


@dataclass(frozen=True)
class Told:
    """What an engine was started with."""

    commit: str
    manifest_digest: str
    served_name: str


class FakeEngines:
    """All of one stage, on one thread."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.asked: list[tuple[str, str]] = []
        """Commit and path of every request."""
        self._servers: dict[str, asyncio.Server] = {}
        self._net = f"127.{random.SystemRandom().randint(16, 254)}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-engines", daemon=True)
        self._thread.start()

    def script(self, commit: str) -> Script:
        return self.scripts.setdefault(commit, Script())

    def start(self, pod: Body, manifest_digest: str) -> str:
        """The pod's address, where its engine answers from now on."""
        container = pod["spec"]["containers"][0]
        args = dict(zip(container["args"], container["args"][1:], strict=False))
        told = Told(args["--revision"], manifest_digest, args["--served-model-name"])
        port = container["ports"][0]["containerPort"]
        starting = self._listen(pod["metadata"]["uid"], port, told)
        return asyncio.run_coroutine_threadsafe(starting, self._loop).result(timeout=10)

    async def _listen(self, uid: str, port: int, told: Told) -> str:
        if uid not in self._servers:
            self._servers[uid] = await self._bind(port, told)
        address: str = self._servers[uid].sockets[0].getsockname()[0]
        return address

    async def _bind(self, port: int, told: Told) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(told, reader, writer)

        dice = random.SystemRandom()
        while True:
            address = f"{self._net}.{dice.randint(0, 255)}.{dice.randint(1, 254)}"
            try:
                return await asyncio.start_server(serve, address, port)
            except OSError:  # another stage has it
                continue

    async def _serve(self, told: Told, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
            sent = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b"{}"
            path = head.split(" ")[1]
            self.asked.append((told.commit, path))
            status, body = self._answer(told, path, json.loads(sent))
            reply = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(reply.encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, told: Told, path: str, sent: Body) -> tuple[str, bytes]:
        script = self.script(told.commit)
        if script.silent:
            return "503 Unavailable", b""
        if path == "/version":
            words = {
                "revision": script.loaded or told.commit,
                "manifest_digest": told.manifest_digest,
                "model": told.served_name,
            }
            return "200 OK", json.dumps(words).encode()
        if path == "/metrics" and script.metrics:
            page = script.metrics if isinstance(script.metrics, str) else script.metrics()
            return "200 OK", page.encode()
        if path == "/v1/completions" and sent["model"] == told.served_name and sent["temperature"] == 0:
            text = script.answers.get(sent["prompt"], told.commit)
            return "200 OK", json.dumps({"choices": [{"text": text}]}).encode()
        return "404 Not Found", b""

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers.values():
                server.close()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
