"""kopf, at its lowest level: watches fill the cache and put keys on our queue; nothing is written by it.

kopf calls index functions for all that is listed before it calls any event function, so that the first
pass sees every child. Deletions reach event functions only, and none at all that happen while a watch is
broken for so long that it must list anew: then the cache is compared with the API server (`resync`).

The functions are coroutines because kopf runs others in threads, and cache and queue belong to the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import kopf

from octavo_operator.api import names
from octavo_operator.shell.cache import Cache, Key, key_of
from octavo_operator.shell.kinds import CHILD_KINDS, INFERENCE_SERVICES, Kind
from octavo_operator.shell.queue import WorkQueue

CHILD_SELECTOR = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


def build_registry(
    cache: Cache, queue: WorkQueue[Key], on_listed: Callable[[], None]
) -> kopf.OperatorRegistry:
    """`on_listed` is called for each object that comes from a listing: at the start, or after a gap."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(log_in)
    for kind in (INFERENCE_SERVICES, *CHILD_KINDS):
        watch_kind(registry, kind, cache, queue, on_listed)
    return registry


def watch_kind(
    registry: kopf.OperatorRegistry,
    kind: Kind,
    cache: Cache,
    queue: WorkQueue[Key],
    on_listed: Callable[[], None],
) -> None:
    selector = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)

    async def remember(body: kopf.Body, **_: object) -> None:
        moved_from = cache.put(kind, dict(body))
        if moved_from is not None:
            queue.add(moved_from)

    async def enqueue(event: kopf.RawEvent, body: kopf.Body, **_: object) -> None:
        if event["type"] is None:
            on_listed()
        dropped_from = cache.drop(kind, dict(body)) if event["type"] == "DELETED" else None
        queue.add(dropped_from or key_of(kind, body))

    kopf.index(*selector, registry=registry, id=f"cache-{kind.plural}")(remember)
    kopf.on.event(*selector, registry=registry, id=f"enqueue-{kind.plural}")(enqueue)


def log_in(**kwargs: object) -> kopf.ConnectionInfo | None:
    info: kopf.ConnectionInfo | None = kopf.login_via_client(**kwargs)
    return info


def build_kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    for kind in CHILD_KINDS:
        settings.watching.label_selectors[kind.group, kind.plural] = CHILD_SELECTOR
    return settings
