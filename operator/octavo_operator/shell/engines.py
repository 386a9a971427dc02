"""Questions to engines, straight at their pods: what they loaded, how they keep up, what they answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from octavo import engine_contract as contract
from octavo_operator.api.spec import ServiceLevelObjective
from octavo_operator.decide.gates.asking import Door
from octavo_operator.decide.gates.attainment import Attained
from octavo_operator.decide.gates.load import Loaded, Silent
from octavo_operator.decide.observed import PodView
from octavo_operator.shell.pod_http import read_answer, url_of

TIMEOUT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 60.0
"""For one probe, on a busy CPU."""
MAX_BYTES: Final = 2**20
MOST_AT_ONCE: Final = 64
UNREADABLE: Final = (httpx.HTTPError, TimeoutError, ValueError, TypeError, KeyError, IndexError)


class EngineSilent(Exception):
    """A probe was not answered; another try may do."""


class Engines:
    """One HTTP client for all pods."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=0)
        # Pods are addressed directly: a proxy of the environment has no business there.
        self._client = httpx.AsyncClient(limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def loaded(self, pods: Iterable[PodView], port: int) -> dict[str, Loaded | Silent]:
        """What each of the pods has loaded."""
        asked = list(pods)
        answers = await asyncio.gather(*(self._loaded(pod, port) for pod in asked))
        return {pod.name: answer for pod, answer in zip(asked, answers, strict=True)}

    async def _loaded(self, pod: PodView, port: int) -> Loaded | Silent:
        try:
            words = json.loads(await self._send("GET", url_of(pod, port, contract.VERSION_PATH)))
            return Loaded(commit=str(words["revision"]), manifest_digest=str(words["manifest_digest"] or ""))
        except UNREADABLE as error:
            return Silent(why=told(error))

    async def attained(
        self, pods: Iterable[PodView], port: int, slo: ServiceLevelObjective
    ) -> dict[str, tuple[str, Attained]]:
        """Requests within the objective by pod, each with its revision; a silent pod is left out."""
        asked = list(pods)
        answers = await asyncio.gather(*(self._attained(pod, port, slo) for pod in asked))
        pairs = zip(asked, answers, strict=True)
        return {pod.name: (pod.revision, answer) for pod, answer in pairs if answer is not None}

    async def _attained(self, pod: PodView, port: int, slo: ServiceLevelObjective) -> Attained | None:
        try:
            text = await self._send("GET", url_of(pod, port, contract.METRICS_PATH))
            return parse_attained(text, slo)
        except UNREADABLE:
            return None

    async def complete(self, pod: PodView, door: Door, prompt: str, max_tokens: int) -> str:
        """The greedy answer. Raises EngineSilent."""
        body = {"model": door.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        url = url_of(pod, door.port, "/v1/completions")
        headers = {"Authorization": f"Bearer {door.api_key}"} if door.api_key else {}
        try:
            answer = await self._send("POST", url, body=body, headers=headers, seconds=ANSWER_SECONDS)
            return str(json.loads(answer)["choices"][0]["text"])
        except UNREADABLE as error:
            raise EngineSilent(f"pod {pod.name}: {told(error)}") from error

    async def _send(
        self,
        method: str,
        url: str,
        *,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> str:
        sent = {**(headers or {}), "Accept-Encoding": "identity"}
        async with (
            asyncio.timeout(seconds),
            self._client.stream(method, url, json=body, headers=sent, timeout=seconds) as response,
        ):
            text = await read_answer(response, MAX_BYTES)
            response.raise_for_status()
        return text


def told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def parse_attained(text: str, slo: ServiceLevelObjective) -> Attained:
    """Raises ValueError where the histograms are missing: unknown is not zero."""
    first = count_within(text, contract.TTFT_SECONDS, slo.ttft_milliseconds / 1000)
    paced = count_within(text, contract.TPOT_SECONDS, slo.tpot_milliseconds / 1000)
    return Attained(first_in_time=first[0], first_tokens=first[1], paced_in_time=paced[0], paced=paced[1])


def count_within(text: str, name: str, seconds: float) -> tuple[int, int]:
    """Values of a histogram at or under a limit, and all; the nearest bound not above it counts."""
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == name else ():
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                buckets[bound] = buckets.get(bound, 0.0) + sample.value
    total = buckets[float("inf")]
    within = max((count for bound, count in buckets.items() if bound <= seconds), default=0.0)
    return int(within), int(total)
