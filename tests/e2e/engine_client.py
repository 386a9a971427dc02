"""A client inside the cluster's network: it reaches Services and pods by their addresses, as a pod would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.demo.chat import Connect, RequestFailed, get_text, post_json
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
