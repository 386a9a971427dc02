"""kopf, at its lowest level: watches fill the cache and put keys on our queue; nothing is written by it.

kopf calls index functions for all that is listed before it calls any event function, so that the first
pass sees every child. Deletions reach event functions only.
"""

from __future__ import annotations

import kopf

from octavo_operator.api import names
from octavo_operator.shell.cache import Cache, Key, key_of
from octavo_operator.shell.kinds import CHILD_KINDS, INFERENCE_SERVICES, Kind
from octavo_operator.shell.queue import WorkQueue

CHILD_SELECTOR = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


def build_registry(cache: Cache, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(log_in)
    for kind in (INFERENCE_SERVICES, *CHILD_KINDS):
        watch_kind(registry, kind, cache, queue)
    return registry


def watch_kind(registry: kopf.OperatorRegistry, kind: Kind, cache: Cache, queue: WorkQueue[Key]) -> None:
    selector = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)

    def remember(body: kopf.Body, **_: object) -> None:
        cache.put(kind, dict(body))

    def enqueue(event: kopf.RawEvent, body: kopf.Body, **_: object) -> None:
        if event["type"] == "DELETED":
            cache.drop(kind, dict(body))
        queue.add(key_of(kind, body))

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
