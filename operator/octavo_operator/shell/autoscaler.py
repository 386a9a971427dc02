"""Feeds the replica decision: who is asked, what is remembered between rounds."""

from __future__ import annotations

from typing import Final

from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.decide.observed import pods_of
from octavo_operator.decide.scaling import ScalingDecision, clamp, decide_fixed_replicas
from octavo_operator.decide.scaling.in_flight import LoadView, ScalingState, decide_by_in_flight
from octavo_operator.decide.target import Target
from octavo_operator.decide.world import World
from octavo_operator.shell.cache import Key
from octavo_operator.shell.scrape import Scraper

SCRAPE_SECONDS: Final = 5.0
"""Between two readings of the engines of one service."""


class Autoscaler:
    """Memory of what was wanted lately; lost with the process, which only delays giving replicas up."""

    def __init__(self, scraper: Scraper) -> None:
        self._scraper = scraper
        self._states: dict[Key, tuple[str, ScalingState]] = {}

    async def decide(self, world: World, target: Target, *, now: float) -> ScalingDecision:
        fixed = decide_fixed_replicas(world.spec)
        if fixed is not None:
            self.forget((world.owner.namespace, world.owner.name))
            return fixed
        policy = world.spec.autoscaling
        assert policy is not None
        view = await self._observe(world, target, clamp(0, policy))
        key = (world.owner.namespace, world.owner.name)
        uid, state = self._states.get(key, (world.owner.uid, ScalingState(since=now)))
        if uid != world.owner.uid:
            state = ScalingState(since=now)
        decision, state = decide_by_in_flight(now=now, policy=policy, view=view, state=state)
        self._states[key] = (world.owner.uid, state)
        return decision

    async def _observe(self, world: World, target: Target, fewest: int) -> LoadView:
        pods = pods_of(world.pods, world.selected)
        serving = world.deployments.get(world.selected or "")
        wanted = target.revision.hash if target.revision else world.selected
        stored = world.revisions.get(world.selected or "")
        said = world.status.autoscaling
        # Somebody deleted the Deployment: its size is still what was last decided.
        lost = said.desired_replicas if said is not None else fewest
        return LoadView(
            readings=await self._scraper.read(
                (pod for pod in pods if pod.ready and pod.address), world.spec.routing.port
            ),
            starting=sum(not pod.ready for pod in pods),
            replicas=serving.wanted if serving else lost,
            planned_max_sequences=stored.revision.plan.max_sequences if stored else 1,
            in_rollout=wanted != world.selected,
        )

    def interval_seconds(self, spec: InferenceServiceSpec) -> float | None:
        """Until the engines are to be read again; None where their load decides nothing."""
        return SCRAPE_SECONDS if decide_fixed_replicas(spec) is None else None

    def forget(self, key: Key) -> None:
        self._states.pop(key, None)
