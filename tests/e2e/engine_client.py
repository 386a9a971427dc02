"""A client inside the cluster's network: it reaches Services and pods by their addresses, as a pod would."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.demo.chat import Connect, RequestFailed, get_text, post_json, read_metrics
from tests.demo.inside import InsideConnection
from tests.demo.service import ServiceRef
from tests.e2e.waiting import wait_until

PORT = 8000


def connect_to_service(netns: Path, service: ServiceRef, timeout: float = 120) -> Connect:
    """Connections to the Service's own address, so that each request goes to any of its ready pods."""
    address = service.kubectl.read(*service.scope, f"service/{service.name}")["spec"]["clusterIP"]
    return lambda: InsideConnection(netns, address, PORT, timeout)


def reach_service(netns: Path, service: ServiceRef) -> Connect:
    """The same, once the address answers: for a service that became available just now.

    kube-proxy writes its rules a moment after the endpoints changed, and refuses until then.
    """
    connect = connect_to_service(netns, service)
    wait_answers(connect)
    return connect


def wait_answers(connect: Connect, seconds: float = 60) -> None:
    """After a start or an outage; never where the proof is that no request fails."""
    wait_until(lambda: probe(connect), lambda failed: not failed, seconds=seconds, what="the Service answers")


def probe(connect: Connect) -> str:
    """Why nothing answered; empty when something did."""
    try:
        get_text(connect, "/version")
    except RequestFailed as failed:
        return str(failed)
    return ""


def connect_to_pod(netns: Path, pod: Mapping[str, Any], timeout: float = 120) -> Connect:
    address = pod["status"]["podIP"]
    return lambda: InsideConnection(netns, address, PORT, timeout)


def ask(connect: Connect, model: str, question: str, *, max_tokens: int = 24) -> dict[str, Any]:
    """One greedy chat answer, whole."""
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    return post_json(connect, "/v1/chat/completions", body)


def engine_info(connect: Connect) -> str:
    """The line of /metrics that names the loaded commit."""
    lines = get_text(connect, "/metrics").splitlines()
    return next(line for line in lines if line.startswith("octavo_engine_info{"))


@dataclass(slots=True, kw_only=True)
class SteadyClient:
    """Asks one short question after another until it is stopped, and notes how each went."""

    connect: Connect
    model: str
    max_tokens: int = 4
    answered: list[str] = field(default_factory=list)
    """The fingerprint of each answer, in order."""
    failures: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> SteadyClient:
        self._thread = threading.Thread(target=self._run, name="steady-client", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join(timeout=180)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.strftime("%H:%M:%S")
            try:
                answer = ask(self.connect, self.model, "Say hello.", max_tokens=self.max_tokens)
                self.answered.append(answer["system_fingerprint"])
            except RequestFailed as failed:
                self.failures.append(f"{began} {failed}")
                time.sleep(0.2)


def load(connect: Connect, model: str, *, clients: int, max_tokens: int) -> Sequence[SteadyClient]:
    return [SteadyClient(connect=connect, model=model, max_tokens=max_tokens) for _ in range(clients)]


def busy(connect: Connect) -> float:
    """Requests that an engine runs or holds waiting."""
    samples = read_metrics(connect)
    return samples["vllm:num_requests_running"] + samples["vllm:num_requests_waiting"]
