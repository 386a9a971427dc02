"""Asks the pods that fetch how far they are; seldom enough that status is not written every second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import httpx

from octavo import engine_contract as contract
from octavo_operator.decide.fetching import FetchReading, describe_fetch, fetching_pods, parse_reading
from octavo_operator.decide.observed import PodView, pods_of
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.shell.cache import Key
from octavo_operator.shell.pod_http import read_answer, url_of

INTERVAL_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 2.0
MOST_PODS: Final = 16
"""Of one service; more would say the same."""
MAX_ANSWER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of a revision, and when."""

    revision: str
    words: str
    at: float


class FetchProgress:
    """Remembers what it said last of each service that fetches, and says the same for a while."""

    def __init__(self, *, port: int = contract.FETCH_PROGRESS_PORT) -> None:
        self._port = port
        # Pods are addressed directly: a proxy of the environment has no business there.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False)
        self._told: dict[Key, Told] = {}

    async def close(self) -> None:
        await self._client.aclose()

    async def read(self, world: World, target: Target, *, now: float) -> tuple[str, float | None]:
        """The words, and seconds until they are to be read anew; none where nothing is fetched."""
        key = (world.owner.namespace, world.owner.name)
        pods = fetching_pods(pods_of(world.pods, target.revision.hash)) if target.revision else ()
        if not pods or target.revision is None:
            self.forget(key)
            return "", None
        told = self._told.get(key)
        if told is None or told.revision != target.revision.hash or now - told.at >= INTERVAL_SECONDS:
            readings = await asyncio.gather(*map(self._ask, pods[:MOST_PODS]))
            words = describe_fetch(one for one in readings if one is not None)
            told = self._told[key] = Told(revision=target.revision.hash, words=words, at=now)
        return told.words, INTERVAL_SECONDS

    async def _ask(self, pod: PodView) -> FetchReading | None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return parse_reading(await self._fetch(url_of(pod, self._port, contract.FETCH_PROGRESS_PATH)))
        except (httpx.HTTPError, TimeoutError, ValueError):
            return None

    async def _fetch(self, url: str) -> str:
        async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            response.raise_for_status()
            return await read_answer(response, MAX_ANSWER_BYTES)

    def forget(self, key: Key) -> None:
        """The service is gone, or fetches nothing."""
        self._told.pop(key, None)
