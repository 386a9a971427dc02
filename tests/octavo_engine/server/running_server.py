"""The whole serving process but for its signals, in a thread, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from octavo_engine.server.engine_port import Engine
from octavo_engine.server.lifecycle import DrainTimes
from octavo_engine.server.process import Interruption, ServeOptions, bind, serve
from octavo_engine.what_runs import Identity
from tests.octavo_engine.text.small_tokenizers import save_tokenizer

REVISION = "0123456789abcdef0123456789abcdef01234567"
MODEL = "m"
HELLO = [{"role": "user", "content": "a"}]
CHATML = (
    "{% for message in messages %}{{ message['role'] + ':' + message['content'] + '|' }}{% endfor %}"
    "{{ 'assistant:' }}"
)
SOON_SECONDS = 10.0
ENDLESS = {"model": MODEL, "prompt": "a", "max_tokens": 1000, "ignore_eos": True}


def write_text_files(
    folder: Path, backend: Any, *, template: str | None = CHATML, generation: dict[str, Any] | None = None
) -> Path:
    """What the server reads of a model's folder."""
    save_tokenizer(backend, folder)
    config = {"eos_token": "</s>", **({"chat_template": template} if template else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(generation or {}))
    return folder


def serve_options(model_dir: Path, **changes: Any) -> ServeOptions:
    values: dict[str, Any] = {
        "model_dir": model_dir,
        "identity": Identity(model_name=MODEL, revision=REVISION, manifest_digest="sha256:0", version="test"),
        "max_open": 64,
        "drain": DrainTimes(accept_seconds=0, shutdown_seconds=5),
    }
    return ServeOptions(**{**values, **changes})


@dataclass
class RunningServer:
    url: str
    http: httpx.Client
    interrupt: Callable[[], None]
    thread: threading.Thread
    engine: Any = None

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=SOON_SECONDS)

    def complete(self, **body: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json={"model": MODEL, "prompt": "a", **body})

    def chat(self, **body: Any) -> httpx.Response:
        return self.http.post("/v1/chat/completions", json={"model": MODEL, "messages": HELLO, **body})

    def events(self, path: str = "/v1/completions", **body: Any) -> list[Any]:
        """The events of a stream, parsed; the last one is the text [DONE]."""
        asked: dict[str, Any] = {"prompt": "a"} if path == "/v1/completions" else {"messages": HELLO}
        body = {"model": MODEL, **asked, "stream": True, **body}
        with self.http.stream("POST", path, json=body) as response:
            assert response.status_code == 200, response.read()
            return [parse_event(line) for line in response.iter_lines() if line]

    def metric(self, name: str, **labels: str) -> float:
        """The value of a sample whose labels include these; fails if there is none."""
        for line in self.http.get("/metrics").text.splitlines():
            head, _, value = line.rpartition(" ")
            named = head.partition("{")[0] == name
            if named and all(f'{label}="{content}"' in head for label, content in labels.items()):
                return float(value)
        raise AssertionError(f"no sample {name} {labels}")


def parse_event(line: str) -> Any:
    assert line.startswith("data: "), line
    content = line.removeprefix("data: ")
    return content if content == "[DONE]" else json.loads(content)


def leave_after(server: RunningServer, seconds: float, **body: Any) -> None:
    """Send a request on a socket of its own and close it without reading an answer."""
    host, port = server.url.removeprefix("http://").split(":")
    content = httpx.Request("POST", server.url, json={**ENDLESS, **body}).content
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + content)
        time.sleep(seconds)


def eventually(holds: Callable[[], bool], within: float = SOON_SECONDS) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


@contextlib.contextmanager
def running_server(options: ServeOptions, load: Callable[[], Engine]) -> Iterator[RunningServer]:
    """Serve until the block ends."""
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    started: list[Callable[[], None]] = []
    ready = threading.Event()

    async def main() -> None:
        loop, interruption = asyncio.get_running_loop(), Interruption()
        started.append(lambda: loop.call_soon_threadsafe(interruption.interrupt, signal.SIGTERM))
        ready.set()
        await serve(options, load, sock, interruption)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="test-server", daemon=True)
    thread.start()
    assert ready.wait(SOON_SECONDS)
    with httpx.Client(base_url=url, timeout=SOON_SECONDS) as http:
        eventually(lambda: answers(http))
        yield RunningServer(url, http, started[0], thread)
    with contextlib.suppress(RuntimeError):
        started[0]()
    thread.join(SOON_SECONDS)
    assert not thread.is_alive(), "the server did not end"


def answers(http: httpx.Client) -> bool:
    try:
        return http.get("/health").status_code in (200, 503)
    except httpx.TransportError:
        return False
