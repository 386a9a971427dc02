"""kopf, at its lowest level: its watch on our own kind fills the cache and puts keys on our queue.

Nothing is written by it. Deletions that happen while a watch is broken for so long that it must list anew
reach no function at all: then the cache is compared with the API server (`resync`). Children have a watch of
their own (`child_watch`), which is done listing before kopf begins.

The function is a coroutine because kopf runs others in threads, and cache and queue belong to the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import kopf

from octavo_operator.shell.cache import Cache, Key, key_of
from octavo_operator.shell.kinds import INFERENCE_SERVICES
from octavo_operator.shell.kube import PAGE_OBJECTS
from octavo_operator.shell.queue import WorkQueue

IDLE_SECONDS: Final = 0.5
"""After which kopf lets go of a body that it told us of; by default it keeps it for five seconds."""


def build_registry(
    cache: Cache, queue: WorkQueue[Key], on_listed: Callable[[], None]
) -> kopf.OperatorRegistry:
    """`on_listed` is called for each object that comes from a listing: at the start, or after a gap."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(log_in)

    async def take(event: kopf.RawEvent, **_: object) -> None:
        body = event["object"]
        if event["type"] is None:
            on_listed()
        if event["type"] == "DELETED":
            cache.drop(INFERENCE_SERVICES, body)
        else:
            cache.put(INFERENCE_SERVICES, body)
        # Of a body that is known as well: an answer to a write of status may have brought an edit of spec.
        queue.add(key_of(INFERENCE_SERVICES, body))

    kind = INFERENCE_SERVICES
    kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(take)
    return registry


def log_in(**kwargs: object) -> kopf.ConnectionInfo | None:
    info: kopf.ConnectionInfo | None = kopf.login_via_client(**kwargs)
    return info


def build_kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.chunk_size = PAGE_OBJECTS
    return settings
