"""One pass over one InferenceService: observe, decide, act, report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from octavo.errors import InvalidSpec
from octavo_operator.api.status import InferenceServiceStatus, parse_status
from octavo_operator.decide.events import draft_events
from octavo_operator.decide.next_state import NextState, Removal, decide_next_state
from octavo_operator.decide.observed import parse_pod
from octavo_operator.decide.report import build_first_status, build_invalid_status
from octavo_operator.decide.surroundings import find_missing_kind, wanted_kinds
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.upstream import place_to_watch
from octavo_operator.decide.world import World, parse_owner, parse_world
from octavo_operator.desired.difference import difference
from octavo_operator.desired.metadata import Manifest, Owner
from octavo_operator.desired.pins import PinsDamaged
from octavo_operator.shell.autoscaler import Autoscaler
from octavo_operator.shell.cache import Cache, Key, owner_uid, version_of
from octavo_operator.shell.engine_reports import EngineReports
from octavo_operator.shell.fetch_progress import FetchProgress
from octavo_operator.shell.gatekeeper import Gatekeeper
from octavo_operator.shell.kinds import INFERENCE_SERVICES, KINDS_BY_NAME, OPTIONAL_KINDS, Kind
from octavo_operator.shell.kube import NAMESPACE_TERMINATING, ApiRefused, Kube
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.scouts import Scouts, with_scouting
from octavo_operator.shell.served import ServedKinds
from octavo_operator.shell.targets import Targets
from octavo_operator.shell.upstream import UpstreamWatch
from octavo_operator.shell.victims import mark_victims

NOT_FOUND: Final = 404
CHILD_REFUSED: Final = "ChildRefused"
REFUSED_SECONDS: Final = 30.0
"""Before we try again what the API server or somebody else's object stood in the way of."""
INVALID_SECONDS: Final = 300.0
"""Before we try again what is wrong in itself: an edit of spec wakes us at once, one of a policy does not."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """How a pass ended, for the work queue."""

    changed: bool = False
    """Something was written to a child: look again at once."""
    again_seconds: float | None = None
    """Something outside may have changed by then."""


class ChildRefused(Exception):
    """The API server does not take a child.

    | it says                                 | mends itself                      |
    |-----------------------------------------|-----------------------------------|
    | 400, 422, or a field is of a wrong type | no: spec must change, or a policy |
    | 403: a quota, a right, a webhook        | yes                               |
    | a webhook cannot be reached             | yes                               |
    """

    def __init__(self, child: str, refused: ApiRefused) -> None:
        way_out = "; correct spec: what spec.template.spec says is passed on as it is"
        super().__init__(f"{child}: {refused}{way_out if refused.is_invalid else ''}")
        self.lasting = refused.is_invalid

    @property
    def refusal(self) -> Refusal:
        return Refusal(reason=CHILD_REFUSED, message=str(self), lasting=self.lasting)


class Reconciler:
    """Holds what a pass needs; of an object it keeps nothing but that its namespace is being deleted."""

    def __init__(
        self,
        *,
        kube: Kube,
        cache: Cache,
        served: ServedKinds,
        targets: Targets,
        upstream: UpstreamWatch,
        scouts: Scouts,
        autoscaler: Autoscaler,
        reports: EngineReports,
        progress: FetchProgress,
        gatekeeper: Gatekeeper,
        meters: Meters,
        hub_endpoint: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._served = served
        self._targets = targets
        self._upstream = upstream
        self._scouts = scouts
        self._autoscaler = autoscaler
        self._reports = reports
        self._progress = progress
        self._gatekeeper = gatekeeper
        self._meters = meters
        self._hub_endpoint = hub_endpoint
        self._clock = clock
        self._doomed: dict[Key, str] = {}
        """Uids of services whose namespaces are being deleted."""

    async def reconcile(self, key: Key) -> Pass | None:
        """None when there is nothing to look after (any more): owner references see to the rest."""
        body = self._cache.service(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(key)
            self._doomed.pop(key, None)
            return None
        now, owner = self._clock(), parse_owner(body)
        if self._doomed.get(key) == owner.uid:
            return Pass()
        try:
            return await self._reconcile_body(key, body, owner, now=now)
        except ApiRefused as refused:
            if not refused.in_vain:
                raise
            self._give_up(key, owner)
            return Pass()

    def _forget(self, key: Key) -> None:
        self._autoscaler.forget(key)
        self._reports.forget(key)
        self._gatekeeper.forget(key)
        self._upstream.forget(key)
        self._scouts.forget(key)
        self._progress.forget(key)

    def _give_up(self, key: Key, owner: Owner) -> None:
        """Nobody can take it back that a namespace is deleted; each child that goes would wake us in vain."""
        self._forget(key)
        self._doomed[key] = owner.uid
        place = {"namespace": key[0], "service": key[1], "reason": NAMESPACE_TERMINATING}
        logger.info("the namespace is being deleted: nothing is made in it any more", extra=place)

    async def _reconcile_body(
        self, key: Key, body: Mapping[str, Any], owner: Owner, *, now: datetime
    ) -> Pass:
        children = self._cache.children(key, owner.uid)
        try:
            world = parse_world(body, children)
        except (InvalidSpec, PinsDamaged) as error:
            status = build_invalid_status(
                self._read_status(owner),
                tuple(map(parse_pod, children.pods)),
                generation=body["metadata"]["generation"],
                reason=type(error).__name__,
                message=str(error),
                now=now,
            )
            await self._report(owner, status)
            return Pass()
        return await self._reconcile_world(world, now=now)

    async def _reconcile_world(self, world: World, *, now: datetime) -> Pass:
        world = self._look_upstream(replace(world, hub_endpoint=self._hub_endpoint))
        scouting = await self._scouts.look(world, now=now)
        world = with_scouting(world, scouting)

        async def announce() -> None:
            if world.status.observed_generation != world.generation:
                await self._report(world.owner, build_first_status(world, now=now))

        target, again_seconds = await self._targets.find(world, now=now, before_asking=announce)
        world = self._look_upstream(replace(world, status=self._read_status(world.owner)))
        world = with_scouting(world, scouting)
        reported = await self._reports.blocks(world, target, now=now.timestamp())
        served = await self._served.names(wanted_kinds(world.spec.routing))
        fetching, look_seconds = await self._progress.read(world, target, now=now.timestamp())
        world = replace(world, engine_reported_blocks=reported, served_kinds=served, fetching=fetching)
        scaling = self._autoscaler.decide(world, target)
        report = await self._gatekeeper.look(world, target, now=now.timestamp())
        world, gates = replace(world, answers=report.answers), report.facts
        wanted = decide_next_state(world, target, scaling, now=now, gates=gates)
        refusal = await self._find_conflict(world, wanted.manifests)
        changed = False
        if refusal is None:
            try:
                await mark_victims(self._kube, world, scaling)
                changed = await self._act(world.owner, wanted)
            except ChildRefused as refused:
                refusal = refused.refusal
        if refusal is not None:
            # What was wanted cannot be had: say so instead, and look again even if no event comes.
            unmade = Target(pin=target.pin, refusal=refusal)
            wanted = decide_next_state(world, unmade, scaling, now=now, gates=gates)
            again_seconds = again_after(refusal)
        await self._report(world.owner, wanted.status)
        waits = [
            again_seconds,
            wanted.again_seconds,
            REFUSED_SECONDS if find_missing_kind(world) else None,
            look_seconds,
            scouting.again_seconds,
            report.again_seconds,
        ]
        return Pass(
            changed=changed, again_seconds=min((one for one in waits if one is not None), default=None)
        )

    def _look_upstream(self, world: World) -> World:
        key = (world.owner.namespace, world.owner.name)
        return replace(world, upstream=self._upstream.watch(key, place_to_watch(world.spec.model)))

    async def _find_conflict(self, world: World, manifests: tuple[Manifest, ...]) -> Refusal | None:
        """An object of a child's name that is not ours must not be taken over."""
        for manifest in manifests:
            kind, name = KINDS_BY_NAME[manifest["kind"]], manifest["metadata"]["name"]
            found = self._cache.find(kind, world.owner.namespace, name)
            if found is None:
                found = await self._kube.read(kind, world.owner.namespace, name)
            if found is not None and owner_uid(found) != world.owner.uid:
                return conflict_refusal(kind, name, found)
        return None

    async def _act(self, owner: Owner, wanted: NextState) -> bool:
        key = (owner.namespace, owner.name)
        changed = await self._apply_all(wanted.manifests)
        return await self._remove_all(key, wanted.removals) or changed

    async def _apply_all(self, manifests: tuple[Manifest, ...]) -> bool:
        changed = False
        for manifest in manifests:
            changed |= await self._apply(manifest)
        return changed

    async def _apply(self, manifest: Manifest) -> bool:
        """True if the stored object is another one than before."""
        kind, metadata = KINDS_BY_NAME[manifest["kind"]], manifest["metadata"]
        observed = self._cache.find(kind, metadata["namespace"], metadata["name"])
        if observed is not None and difference(manifest, with_type(kind, observed)) is None:
            return False
        try:
            stored = await self._write(kind, manifest)
        except ApiRefused as refused:
            if refused.in_vain or refused.is_passing:
                raise
            if refused.status == NOT_FOUND and kind in OPTIONAL_KINDS:
                self._served.forget(kind)
            raise ChildRefused(f"{kind.name} {metadata['name']}", refused) from refused
        self._cache.put(kind, stored)
        # Equal versions: a policy of the cluster undoes what we write. Once a pass is enough of that.
        return observed is None or version_of(observed) != version_of(stored)

    async def _write(self, kind: Kind, manifest: Manifest) -> Mapping[str, Any]:
        self._meters.writes.labels(kind.name).inc()
        stored = await self._kube.apply(manifest)
        if difference(manifest, with_type(kind, stored)) is None:
            return stored
        self._meters.writes.labels(kind.name).inc()
        return await self._kube.overwrite(manifest)

    async def _remove_all(self, key: Key, removals: tuple[Removal, ...]) -> bool:
        for removal in removals:
            kind = KINDS_BY_NAME[removal.kind]
            await self._kube.delete(kind, key[0], removal.name)
            self._meters.writes.labels(kind.name).inc()
            self._cache.forget(kind, key[0], removal.name)
        return bool(removals)

    def _read_status(self, owner: Owner) -> InferenceServiceStatus:
        """As it was last written, perhaps a moment ago by this very pass."""
        body = self._cache.service((owner.namespace, owner.name))
        return parse_status(dict(body.get("status", {}))) if body else InferenceServiceStatus()

    async def _report(self, owner: Owner, status: InferenceServiceStatus) -> None:
        """Written only when it differs from what was written last."""
        key = (owner.namespace, owner.name)
        before = self._read_status(owner)
        if before == status:
            return
        stored = await self._kube.apply_status(owner, status)
        if stored is None:
            self._cache.forget(INFERENCE_SERVICES, owner.namespace, owner.name)
            return
        self._meters.writes.labels(INFERENCE_SERVICES.name).inc()
        self._cache.put(INFERENCE_SERVICES, stored)
        for draft in draft_events(before, status):
            logger.info(draft.message, extra={"namespace": key[0], "service": key[1], "reason": draft.reason})
            await self._kube.tell(owner, draft, now=self._clock())


def again_after(refusal: Refusal) -> float:
    """Somebody else's object is looked for as often as ever: that it is gone is no event of ours."""
    return INVALID_SECONDS if refusal.lasting and refusal.reason == CHILD_REFUSED else REFUSED_SECONDS


def conflict_refusal(kind: Kind, name: str, found: Mapping[str, Any]) -> Refusal:
    """Somebody else's object, or one that an InferenceService of the same name has left behind for now."""
    references = found["metadata"].get("ownerReferences", ())
    if any(one["kind"] == INFERENCE_SERVICES.name for one in references):
        message = f"{kind.name} {name} of an earlier InferenceService is still being deleted"
        return Refusal(reason="WaitingForDeletion", message=message, lasting=False)
    message = f"{kind.name} {name} exists and belongs to somebody else; rename or delete it"
    return Refusal(reason="NameConflict", message=message)


def with_type(kind: Kind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Objects in a list come without kind and apiVersion."""
    api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    return {**body, "kind": kind.name, "apiVersion": api_version}
