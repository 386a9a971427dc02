"""The demo's question to the served model, streamed, with the engine's metrics while it answers."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from octavo import engine_contract
from tests.demo.chat import Connect, RequestFailed, read_metrics, stream_chat

QUESTION = "What is the capital of France, and what is it known for?"
MAX_TOKENS = 60
METRICS_AT_CHUNK = 5
SHOWN_METRICS = (
    engine_contract.NUM_REQUESTS_RUNNING,
    engine_contract.NUM_REQUESTS_WAITING,
    engine_contract.NUM_PREEMPTIONS,
    engine_contract.KV_CACHE_USAGE,
    engine_contract.PLANNED_KV_BLOCKS,
    engine_contract.MEASURED_KV_BLOCKS,
)


def ask(connect: Connect, model: str, out: TextIO) -> tuple[str, dict[str, float]]:
    """Stream the answer to `out`; gives its fingerprint and the metrics seen in the middle of it."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    fingerprint, meanwhile = "", None
    with ThreadPoolExecutor(max_workers=1) as thread:
        for number, chunk in enumerate(stream_chat(connect, body)):
            print(chunk.text, end="", file=out, flush=True)
            fingerprint = chunk.fingerprint or fingerprint
            if number == METRICS_AT_CHUNK:
                meanwhile = thread.submit(read_metrics, connect)
        print(file=out, flush=True)
        return fingerprint, meanwhile.result() if meanwhile else {}


def metrics_table(during: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    rows = [f"{'':34}{'answering':>12}{'after':>12}"]
    for name in SHOWN_METRICS:
        rows.append(f"{name:34}{shown(during, name):>12}{shown(after, name):>12}")
    return rows


def shown(samples: Mapping[str, float], name: str) -> str:
    return f"{samples[name]:.4g}" if name in samples else "-"


def settled_metrics(connect: Connect) -> dict[str, float]:
    try:
        return read_metrics(connect)
    except (RequestFailed, http.client.HTTPException):
        return {}
