"""What the model hub says, asked from a person's machine."""

from __future__ import annotations

import os

from octavo_operator.decide.pinning import repository_of
from octavo_operator.decide.target import Refusal
from octavo_operator.shell.hub import Hub


def hub_endpoint() -> str:
    """As for every other program that speaks to a hub."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/")


async def resolve_words(endpoint: str, uri: str, revision: str) -> str | Refusal:
    hub = Hub(endpoint)
    try:
        return await hub.resolve(repository_of(uri), revision)
    finally:
        await hub.close()
