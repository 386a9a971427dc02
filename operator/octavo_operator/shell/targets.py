"""From spec to a target: recall what is known, and ask the hub only for words never resolved before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from octavo.planning import MemoryPlan
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.intent import HASH_VERSION, build_intent, hash_intent
from octavo_operator.decide.pinning import find_pin, is_commit, repository_of
from octavo_operator.decide.sizing import plan_memory, summarize_plan
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin
from octavo_operator.desired.pod_template import PodInputs, build_pod_template
from octavo_operator.desired.revision import Revision
from octavo_operator.shell.hub import Hub, parse_object
from octavo_operator.shell.queue import retry_delay
from octavo_operator.shell.settings import Settings

REMEMBERED_CONFIGS: Final = 256
REMEMBERED_BYTES: Final = 8 * 2**20
REMEMBERED_REFUSALS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRefusal:
    """What the hub said to some words, and until when it is not asked again."""

    refusal: Refusal
    pin: Pin | None
    failures: int
    until: float


class Targets:
    """Makes targets; remembers what config.json said, since a commit never changes."""

    def __init__(self, settings: Settings, hub: Hub, *, draw_jitter: Callable[[], float]) -> None:
        self._settings = settings
        self._hub = hub
        self._draw_jitter = draw_jitter
        self._configs: dict[tuple[str, str], str] = {}
        self._refused: dict[tuple[str, str, str], HubRefusal] = {}

    async def find(
        self, world: World, *, now: datetime, before_asking: Callable[[], Awaitable[None]]
    ) -> tuple[Target, float | None]:
        """The target, and seconds until the hub may be asked again if it refused.

        `before_asking` runs before the first question to the hub, which may take its time.
        """
        words = (world.spec.model.uri, world.spec.model.revision, world.spec.model.refresh_token)
        refused = self._refused.get(words)
        if refused is not None and refused.until > now.timestamp() and not self._is_stored(world):
            return Target(pin=refused.pin, refusal=refused.refusal), refused.until - now.timestamp()
        target = await self._find(world, now=now, before_asking=before_asking)
        if target.refusal is None or not target.refusal.at_hub:
            self._refused.pop(words, None)
            return target, None
        failures = refused.failures + 1 if refused is not None else 1
        delay = retry_delay(failures, self._draw_jitter())
        self._refused[words] = HubRefusal(
            refusal=target.refusal, pin=target.pin, failures=failures, until=now.timestamp() + delay
        )
        if len(self._refused) > REMEMBERED_REFUSALS:
            del self._refused[next(iter(self._refused))]
        return target, delay

    def _is_stored(self, world: World) -> bool:
        return hash_intent(build_intent(world.spec)) in world.revisions

    async def _find(
        self, world: World, *, now: datetime, before_asking: Callable[[], Awaitable[None]]
    ) -> Target:
        intent = build_intent(world.spec)
        stored = world.revisions.get(hash_intent(intent))
        pin = find_pin(world.pins, world.spec.model)
        if stored is not None and pin is not None:
            return Target(pin=pin, revision=stored.revision)
        if pin is None or (pin.uri, pin.commit) not in self._configs:
            await before_asking()
        resolved = pin or await self._resolve(world.spec.model, now=now)
        if isinstance(resolved, Refusal):
            return Target(refusal=resolved)
        return await self._plan(world, resolved)

    async def _resolve(self, model: ModelSource, *, now: datetime) -> Pin | Refusal:
        """A commit is asked for too: that it exists is worth knowing before a pod does."""
        commit = await self._hub.resolve(repository_of(model.uri), model.revision)
        if isinstance(commit, Refusal):
            return commit
        if is_commit(model.revision) and commit != model.revision:
            message = f"{model.uri} at {model.revision}: the hub answered with another commit, {commit}"
            return Refusal(reason="RevisionMismatch", message=message, at_hub=True)
        return Pin(
            uri=model.uri,
            revision=model.revision,
            refresh_token=model.refresh_token,
            commit=commit,
            resolved_at=format_time(now),
        )

    async def _plan(self, world: World, pin: Pin) -> Target:
        config = await self._read_config(pin)
        if isinstance(config, Refusal):
            return Target(pin=pin, refusal=config)
        plan = plan_memory(world.spec, parse_object(config))
        if isinstance(plan, Refusal):
            return Target(pin=pin, refusal=plan)
        return Target(pin=pin, revision=self._build_revision(world, pin, plan))

    def _build_revision(self, world: World, pin: Pin, plan: MemoryPlan) -> Revision:
        intent = build_intent(world.spec)
        inputs = PodInputs(
            service=world.owner.name,
            revision=hash_intent(intent),
            spec=world.spec,
            commit=pin.commit,
            image=world.spec.engine.image or self._settings.engine_image,
            plan=plan,
            hub_endpoint=self._settings.hub_endpoint,
        )
        # Pods without a record are there only if somebody deleted it: that restarts none of them, even if
        # this operator would now build them otherwise.
        running = world.deployments.get(inputs.revision)
        template = dict(running.template) if running else build_pod_template(inputs)
        return Revision(
            hash=inputs.revision,
            hash_version=HASH_VERSION,
            intent=intent,
            commit=pin.commit,
            image=template["spec"]["containers"][0]["image"],
            plan=summarize_plan(plan),
            template=template,
        )

    async def _read_config(self, pin: Pin) -> str | Refusal:
        place = (pin.uri, pin.commit)
        if place not in self._configs:
            config = await self._hub.read_config(repository_of(pin.uri), pin.commit)
            if isinstance(config, Refusal):
                return config
            self._remember(place, config)
            return config
        return self._configs[place]

    def _remember(self, place: tuple[str, str], config: str) -> None:
        """As text: a megabyte of brackets would be twenty as objects."""
        self._configs[place] = config
        while (
            len(self._configs) > REMEMBERED_CONFIGS
            or sum(map(len, self._configs.values())) > REMEMBERED_BYTES
        ):
            del self._configs[next(iter(self._configs))]
