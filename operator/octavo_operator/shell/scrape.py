"""Reads the engines' metrics, straight from the pods, all at once and within one time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from octavo import engine_contract as contract
from octavo_operator.decide.observed import PodView
from octavo_operator.decide.scaling import Reading, Sample, Unknown

TIMEOUT_SECONDS: Final = 3.0
MOST_AT_ONCE: Final = 64
WANTED: Final = (contract.NUM_REQUESTS_RUNNING, contract.NUM_REQUESTS_WAITING, contract.MAX_SEQUENCES)


class Scraper:
    """One HTTP client for all pods; a pod that does not answer in time is unknown, never zero."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE)
        # Pods are addressed directly: a proxy of the environment has no business there.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def read(self, pods: Iterable[PodView], port: int) -> dict[str, Reading]:
        """One reading for each of the pods, which are those that are ready."""
        asked = list(pods)
        readings = await asyncio.gather(*(self._read_pod(pod, port) for pod in asked))
        return {pod.name: reading for pod, reading in zip(asked, readings, strict=True)}

    async def _read_pod(self, pod: PodView, port: int) -> Reading:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                response = await self._client.get(f"http://{host}:{port}{contract.METRICS_PATH}")
            response.raise_for_status()
            return parse_metrics(response.text)
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            return Unknown(reason=f"{type(error).__name__}: {error}".rstrip(": "))


def parse_metrics(text: str) -> Reading:
    """The numbers that sizing needs; one that is not there makes the pod unknown."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in WANTED:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    missing = [name for name in WANTED if name not in values]
    if missing:
        return Unknown(reason=f"{', '.join(missing)} not reported")
    running, waiting, most = (values[name] for name in WANTED)
    return Sample(running=running, waiting=waiting, max_sequences=most)
