"""Starts the operator: `python -m octavo_operator.shell`, configured by environment variables alone."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from datetime import UTC, datetime
from typing import Final

import kopf

from octavo.errors import InvalidSpec
from octavo_operator.shell.autoscaler import Autoscaler
from octavo_operator.shell.cache import Cache, Key
from octavo_operator.shell.child_watch import ChildWatch
from octavo_operator.shell.engine_reports import EngineReports
from octavo_operator.shell.engines import Engines
from octavo_operator.shell.fetch_progress import FetchProgress
from octavo_operator.shell.gatekeeper import Gatekeeper
from octavo_operator.shell.hub import Hub
from octavo_operator.shell.hub_manifest import Manifests
from octavo_operator.shell.kinds import INFERENCE_SERVICES
from octavo_operator.shell.kube import ApiRefused, ApiUnreachable, Kube, connect
from octavo_operator.shell.leadership import Leadership, lead
from octavo_operator.shell.logs import configure_logs
from octavo_operator.shell.lookup import Lookup
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.probe_runs import ProbeRuns
from octavo_operator.shell.queue import WorkQueue
from octavo_operator.shell.reconcile import Reconciler
from octavo_operator.shell.resolver_pods import ResolverPods
from octavo_operator.shell.resync import Resync
from octavo_operator.shell.scaling_memory import MemoryWriter
from octavo_operator.shell.scouts import Scouts
from octavo_operator.shell.scrape import Scraper
from octavo_operator.shell.served import ServedKinds
from octavo_operator.shell.settings import Settings, read_settings
from octavo_operator.shell.targets import Targets
from octavo_operator.shell.upstream import UpstreamWatch
from octavo_operator.shell.watch import build_kopf_settings, build_registry
from octavo_operator.shell.worker import Workers

CRD_WAIT_SECONDS: Final = 2.0
BAD_SETTINGS_EXIT_CODE: Final = 2
LEASE_LOST_EXIT_CODE: Final = 3

logger = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    kube, meters, cache = await connect(), Meters(), Cache()
    scraper, served = Scraper(clock=time.time), ServedKinds(kube)
    hub, progress = Hub(settings.hub_endpoint), FetchProgress()
    queue: WorkQueue[Key] = WorkQueue(draw_jitter=random.random)
    upstream = build_upstream(settings, hub, queue)
    resolver_pods = ResolverPods(kube=kube, cache=cache, meters=meters)
    lookup = Lookup(settings, hub, Manifests(hub), resolver_pods, upstream)
    gatekeeper = build_gatekeeper(kube, queue)
    memory = MemoryWriter(kube=kube, cache=cache, meters=meters)
    autoscaler = Autoscaler(scraper=scraper, memory=memory, queue=queue, clock=time.time)
    reconciler = Reconciler(
        kube=kube,
        cache=cache,
        served=served,
        targets=Targets(settings, lookup, draw_jitter=random.random),
        upstream=upstream,
        scouts=build_scouts(settings, lookup, resolver_pods),
        autoscaler=autoscaler,
        reports=EngineReports(scraper),
        progress=progress,
        gatekeeper=gatekeeper,
        meters=meters,
        hub_endpoint=settings.hub_endpoint,
        clock=lambda: datetime.now(UTC),
    )
    workers = Workers(queue, reconciler, meters)
    show_sizes(meters, queue, cache, upstream)
    meters.serve(settings.metrics_address, autoscaler.published)
    resync, children = build_watches(settings, kube, cache, queue, served)
    registry = build_registry(cache, queue, on_listed=resync.ask)
    leadership = build_leadership(settings, kube.apart())
    background: list[asyncio.Task[None]] = []

    def act() -> None:
        workers.start()
        background.extend(asyncio.create_task(one.run()) for one in (resync, upstream))

    async def start(**_: object) -> None:
        await wait_for_definition(kube)
        background.append(asyncio.create_task(children.run()))
        await children.wait_listed()
        background.append(asyncio.create_task(lead(leadership, act, end=end_now)))

    async def stop(**_: object) -> None:
        for task in background:
            task.cancel()
        await workers.stop()
        for opened in (gatekeeper, autoscaler, scraper, progress, hub):
            await opened.close()
        if leadership is not None:
            await leadership.release()
        await kube.close()

    kopf.on.startup(registry=registry)(start)
    kopf.on.cleanup(registry=registry)(stop)
    await run_kopf(registry, settings)


async def run_kopf(registry: kopf.OperatorRegistry, settings: Settings) -> None:
    """Until the process is told to end."""
    namespace = settings.watch_namespace
    await kopf.operator(
        registry=registry,
        settings=build_kopf_settings(),
        standalone=True,
        clusterwide=not namespace,
        namespaces=[namespace] if namespace else [],
        liveness_endpoint=f"http://{settings.health_address}/healthz",
    )


def build_watches(
    settings: Settings, kube: Kube, cache: Cache, queue: WorkQueue[Key], served: ServedKinds
) -> tuple[Resync, ChildWatch]:
    """The watch on children, and what compares the cache after it had to list anew."""
    namespace = settings.watch_namespace
    resync = Resync(kube=kube, cache=cache, queue=queue, namespace=namespace, optional=lambda: served.kinds)
    children = ChildWatch(
        kube=kube, cache=cache, queue=queue, served=served, namespace=namespace, on_listed=resync.ask
    )
    return resync, children


def build_gatekeeper(kube: Kube, queue: WorkQueue[Key]) -> Gatekeeper:
    engines = Engines()
    return Gatekeeper(kube, engines, ProbeRuns(engines, tell=queue.add, clock=time.monotonic))


def build_scouts(settings: Settings, lookup: Lookup, resolver_pods: ResolverPods) -> Scouts:
    return Scouts(
        lookup=lookup,
        resolver_pods=resolver_pods,
        interval_seconds=settings.private_interval_seconds,
        draw_jitter=random.random,
    )


def build_leadership(settings: Settings, kube: Kube) -> Leadership | None:
    """None where there is no Lease to hold, as on a developer's machine."""
    if not settings.lease_namespace:
        return None
    return Leadership(
        kube=kube,
        namespace=settings.lease_namespace,
        identity=settings.identity,
        clock=time.monotonic,
        now=lambda: datetime.now(UTC),
    )


def end_now() -> None:
    """Without the ordinary end, which writes: somebody else may be writing already."""
    os._exit(LEASE_LOST_EXIT_CODE)


def show_sizes(meters: Meters, queue: WorkQueue[Key], cache: Cache, upstream: UpstreamWatch) -> None:
    meters.watch("octavo_operator_queue_depth", "Keys that wait for a worker.", queue.depth)
    meters.watch("octavo_operator_cached_objects", "Objects in the cache.", cache.size)
    meters.watch("octavo_operator_watched_words", "Words that are compared with the hub.", upstream.size)


def build_upstream(settings: Settings, hub: Hub, queue: WorkQueue[Key]) -> UpstreamWatch:
    return UpstreamWatch(
        ask=hub.resolve,
        tell=queue.add,
        interval_seconds=settings.upstream_interval_seconds,
        draw_jitter=random.random,
        clock=time.monotonic,
    )


async def wait_for_definition(kube: Kube) -> None:
    """kopf looks up once what the API server serves; the definition may be installed a moment later."""
    while not await is_defined(kube):
        await asyncio.sleep(CRD_WAIT_SECONDS)


async def is_defined(kube: Kube) -> bool:
    try:
        defined = await kube.serves(INFERENCE_SERVICES)
    except (ApiRefused, ApiUnreachable) as error:
        logger.warning("the API server does not answer: %s", error)
        return False
    if not defined:
        logger.warning("the API server does not serve InferenceServices yet; is the CRD installed?")
    return defined


def main() -> int:
    try:
        settings = read_settings(os.environ)
    except InvalidSpec as error:
        sys.stderr.write(f"{error}\n")
        return BAD_SETTINGS_EXIT_CODE
    configure_logs(settings.log_format)
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
