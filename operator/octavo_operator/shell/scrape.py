"""Reads the engines' metrics, straight from the pods, all at once and within one time limit.

A service with many pods, or with pods that hang, must not keep the readings of others: each round has its
own share of the connections and its own end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

import httpx

from octavo import engine_contract as contract
from octavo_operator.decide.observed import PodView
from octavo_operator.decide.scaling import Reading, Unknown
from octavo_operator.shell.engine_page import parse_page
from octavo_operator.shell.exposition import read_samples
from octavo_operator.shell.pod_http import read_answer, url_of

TIMEOUT_SECONDS: Final = 3.0
"""For one pod."""
ROUND_SECONDS: Final = 5.0
"""For all pods of one service; with fewer than can be asked at once it never comes to that."""
ROUND_AT_ONCE: Final = 32
MOST_AT_ONCE: Final = 512
MAX_METRICS_BYTES: Final = 2**20
MAX_BLOCKS: Final = 2**40
"""More is no number of blocks, and might not fit into status."""

UNREADABLE: Final = (httpx.HTTPError, TimeoutError, ValueError)


class Scraper:
    """One HTTP client for all pods; a pod that does not answer in time is unknown, never zero."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        limits = httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=0)
        # Pods are addressed directly: a proxy of the environment has no business there.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def read(self, pods: Iterable[PodView], port: int) -> dict[str, Reading]:
        """One reading for each of the pods, which are those that are ready."""
        asked = list(pods)
        slots = asyncio.Semaphore(ROUND_AT_ONCE)
        readings: dict[str, Reading] = {pod.name: Unknown(reason="no answer in time") for pod in asked}

        async def read_one(pod: PodView) -> None:
            async with slots:
                readings[pod.name] = await self._read_pod(pod, port)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS), asyncio.TaskGroup() as group:
                for pod in asked:
                    group.create_task(read_one(pod))
        return readings

    async def _read_pod(self, pod: PodView, port: int) -> Reading:
        try:
            return parse_page(await self._metrics_of(pod, port), at=self._clock())
        except UNREADABLE as error:
            return Unknown(reason=f"{type(error).__name__}: {error}".rstrip(": "))

    async def measured_blocks(self, pod: PodView, port: int) -> int | None:
        """KV blocks that the engine measured room for; None where it does not say."""
        try:
            samples = read_samples(await self._metrics_of(pod, port), (contract.MEASURED_KV_BLOCKS,))
        except UNREADABLE:
            return None
        blocks = sum(number for _, number in samples.get(contract.MEASURED_KV_BLOCKS, ()))
        return int(blocks) if 1 <= blocks <= MAX_BLOCKS else None

    async def _metrics_of(self, pod: PodView, port: int) -> str:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._fetch(url_of(pod, port, contract.METRICS_PATH))

    async def _fetch(self, url: str) -> str:
        async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            response.raise_for_status()
            return await read_answer(response, MAX_METRICS_BYTES)
