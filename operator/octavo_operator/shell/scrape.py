"""Reads the engines' metrics, straight from the pods, all at once and within one time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from octavo import engine_contract as contract
from octavo_operator.decide.observed import PodView
from octavo_operator.decide.scaling import Unknown
from octavo_operator.decide.scaling.in_flight import Reading, Sample

TIMEOUT_SECONDS: Final = 3.0
MOST_AT_ONCE: Final = 64
MAX_METRICS_BYTES: Final = 2**20
MAX_BLOCKS: Final = 2**40
"""More is no number of blocks, and might not fit into status."""
WANTED: Final = (contract.NUM_REQUESTS_RUNNING, contract.NUM_REQUESTS_WAITING, contract.MAX_SEQUENCES)

UNREADABLE: Final = (httpx.HTTPError, TimeoutError, ValueError)


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
        try:
            return parse_metrics(await self._metrics_of(pod, port))
        except UNREADABLE as error:
            return Unknown(reason=f"{type(error).__name__}: {error}".rstrip(": "))

    async def measured_blocks(self, pod: PodView, port: int) -> int | None:
        """KV blocks that the engine measured room for; None where it does not say."""
        try:
            values = sum_by_name(await self._metrics_of(pod, port), (contract.MEASURED_KV_BLOCKS,))
        except UNREADABLE:
            return None
        blocks = values.get(contract.MEASURED_KV_BLOCKS, 0.0)
        return int(blocks) if 1 <= blocks <= MAX_BLOCKS else None

    async def _metrics_of(self, pod: PodView, port: int) -> str:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._fetch(f"http://{host}:{port}{contract.METRICS_PATH}")

    async def _fetch(self, url: str) -> str:
        """An engine's image may be anybody's: what it sends is not kept without end."""
        data = bytearray()
        async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_METRICS_BYTES:
                    raise ValueError(f"the metrics are longer than {MAX_METRICS_BYTES} bytes")
        return data.decode(errors="replace")


def sum_by_name(text: str, wanted: Collection[str]) -> dict[str, float]:
    """Each wanted metric that is there, summed over its labels."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in wanted:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return values


def parse_metrics(text: str) -> Reading:
    """The numbers that sizing needs; one that is not there makes the pod unknown."""
    values = sum_by_name(text, WANTED)
    missing = [name for name in WANTED if name not in values]
    if missing:
        return Unknown(reason=f"{', '.join(missing)} not reported")
    running, waiting, most = (values[name] for name in WANTED)
    return Sample(running=running, waiting=waiting, max_sequences=most)
