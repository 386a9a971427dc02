"""Questions to a hub, each in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from octavo_operator.decide.target import Refusal
from octavo_operator.shell.cache import Key
from octavo_operator.shell.hub import Hub
from octavo_operator.shell.upstream import Ask, UpstreamWatch


@dataclass(frozen=True)
class Asker:
    """The operator's hub client, without the awaiting."""

    endpoint: str

    def resolve(self, repository: str, revision: str) -> str | Refusal:
        async def ask(hub: Hub) -> str | Refusal:
            return await hub.resolve(repository, revision)

        return asyncio.run(self._with_hub(ask))

    def read_config(self, repository: str, commit: str) -> str | Refusal:
        async def ask(hub: Hub) -> str | Refusal:
            return await hub.read_config(repository, commit)

        return asyncio.run(self._with_hub(ask))

    async def _with_hub(self, ask: Callable[[Hub], Awaitable[str | Refusal]]) -> str | Refusal:
        hub = Hub(self.endpoint)
        try:
            return await ask(hub)
        finally:
            await hub.close()


def make_upstream(
    ask: Ask,
    *,
    tell: Callable[[Key], None] = lambda _: None,
    interval: float = 300.0,
    clock: Callable[[], float] = lambda: 0.0,
) -> UpstreamWatch:
    return UpstreamWatch(ask=ask, tell=tell, interval_seconds=interval, draw_jitter=lambda: 0.0, clock=clock)
