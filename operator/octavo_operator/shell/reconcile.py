"""One pass over one InferenceService: observe, decide, act, report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from octavo_operator.api.status import InferenceServiceStatus, parse_status
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.next_state import Removal, decide_next_state
from octavo_operator.decide.report import build_first_status
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.world import World, parse_world
from octavo_operator.desired.difference import difference
from octavo_operator.desired.metadata import Manifest
from octavo_operator.shell.autoscaler import Autoscaler
from octavo_operator.shell.cache import Cache, Key, owner_uid
from octavo_operator.shell.kinds import INFERENCE_SERVICES, KINDS_BY_NAME, Kind
from octavo_operator.shell.kube import Kube
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.targets import Targets

CONFLICT_SECONDS: Final = 60.0
"""Before we look whether somebody else's object of our name is gone; its deletion is not watched."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """How a pass ended, for the work queue."""

    changed: bool = False
    """Something was written to a child: look again at once."""
    again_seconds: float | None = None
    """Something outside may have changed by then."""


class Reconciler:
    """Holds what a pass needs; keeps no state of its own about any object."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        targets: Targets,
        autoscaler: Autoscaler,
        meters: Meters,
        clock: Callable[[], datetime],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._targets = targets
        self._autoscaler = autoscaler
        self._meters = meters
        self._clock = clock

    async def reconcile(self, key: Key) -> Pass | None:
        """None when there is nothing to look after (any more): owner references see to the rest."""
        body = self._cache.service(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._autoscaler.forget(key)
            return None
        world = parse_world(body, self._cache.children(key, body["metadata"]["uid"]))
        now = self._clock()

        async def announce() -> None:
            if world.status.observed_generation != world.generation:
                await self._report(world, build_first_status(world, now=now))

        target, again_seconds = await self._targets.find(world, now=now, before_asking=announce)
        scaling = await self._autoscaler.decide(world, target, now=now.timestamp())
        wanted = decide_next_state(world, target, scaling, now=now)
        conflict = await self._find_conflict(world, wanted.manifests)
        if conflict is not None:
            target = Target(pin=target.pin, refusal=conflict)
            wanted = decide_next_state(world, target, scaling, now=now)
            await self._report(world, wanted.status)
            return Pass(again_seconds=CONFLICT_SECONDS)
        changed = await self._apply_all(key, wanted.manifests)
        changed |= await self._remove_all(key, wanted.removals)
        await self._report(world, wanted.status)
        waits = [again_seconds, self._autoscaler.interval_seconds(world.spec)]
        return Pass(
            changed=changed, again_seconds=min((one for one in waits if one is not None), default=None)
        )

    async def _find_conflict(self, world: World, manifests: tuple[Manifest, ...]) -> Refusal | None:
        """A child that is not there yet must not take over somebody else's object of that name."""
        for manifest in manifests:
            kind, name = KINDS_BY_NAME[manifest["kind"]], manifest["metadata"]["name"]
            key = (world.owner.namespace, world.owner.name)
            if self._cache.child(kind, key, name) is not None:
                continue
            found = await self._kube.read(kind, world.owner.namespace, name)
            if found is not None and owner_uid(found) != world.owner.uid:
                message = f"{kind.name} {name} exists and belongs to somebody else; rename or delete it"
                return Refusal(reason="NameConflict", message=message)
        return None

    async def _apply_all(self, key: Key, manifests: tuple[Manifest, ...]) -> bool:
        changed = False
        for manifest in manifests:
            changed |= await self._apply(key, manifest)
        return changed

    async def _apply(self, key: Key, manifest: Manifest) -> bool:
        kind = KINDS_BY_NAME[manifest["kind"]]
        observed = self._cache.child(kind, key, manifest["metadata"]["name"])
        if observed is not None and difference(manifest, with_type(kind, observed)) is None:
            return False
        stored = await self._kube.apply(manifest)
        self._meters.writes.labels(kind.name).inc()
        self._cache.put(kind, stored)
        return True

    async def _remove_all(self, key: Key, removals: tuple[Removal, ...]) -> bool:
        for removal in removals:
            kind = KINDS_BY_NAME[removal.kind]
            await self._kube.delete(kind, key[0], removal.name)
            self._meters.writes.labels(kind.name).inc()
            self._cache.forget(kind, key, removal.name)
        return bool(removals)

    async def _report(self, world: World, status: InferenceServiceStatus) -> None:
        """Written only when it differs from what was written last."""
        key = (world.owner.namespace, world.owner.name)
        before = self._latest_status(key, world)
        if before == status:
            return
        stored = await self._kube.apply_status(world.owner, status)
        self._meters.writes.labels(INFERENCE_SERVICES.name).inc()
        self._cache.put(INFERENCE_SERVICES, stored)
        for draft in draft_events(before, status):
            logger.info(draft.message, extra={"namespace": key[0], "service": key[1], "reason": draft.reason})
            await self._kube.tell(world.owner, draft, now=self._clock())

    def _latest_status(self, key: Key, world: World) -> InferenceServiceStatus:
        body = self._cache.service(key)
        return parse_status(dict(body.get("status", {}))) if body else world.status


def with_type(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Objects in a list come without kind and apiVersion."""
    api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {**body, "kind": kind.name, "apiVersion": api_version}
