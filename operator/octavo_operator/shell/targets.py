"""From spec to a target: recall what is known, and look up only words that were never resolved before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from octavo.planning import MemoryPlan
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.intent import hash_intent
from octavo_operator.decide.pinning import find_pin, refuse_words
from octavo_operator.decide.revising import build_revision, intent_of
from octavo_operator.decide.sizing import plan_revision
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.upstream import follow
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin
from octavo_operator.desired.resolver_pod import needs_resolver
from octavo_operator.desired.revision import Revision
from octavo_operator.shell.lookup import Announce, Lookup
from octavo_operator.shell.queue import FIRST_DELAY_SECONDS
from octavo_operator.shell.refusals import Refusals, Words
from octavo_operator.shell.settings import Settings

RESOLVER_FIRST_SECONDS: Final = 15.0
"""Before another pod is started where one has failed; longer each time."""


class Targets:
    """Makes targets; remembers whom not to ask again for a while."""

    def __init__(self, settings: Settings, lookup: Lookup, *, draw_jitter: Callable[[], float]) -> None:
        self._settings = settings
        self._lookup = lookup
        self._refusals = Refusals(draw_jitter=draw_jitter)

    async def find(
        self, world: World, *, now: datetime, before_asking: Announce
    ) -> tuple[Target, float | None]:
        """The target, and seconds until somebody may be asked again who refused.

        `before_asking` runs before the first question to the hub, which may take its time.
        """
        known = find_pin(world.pins, world.spec.model)
        refusal = refuse_words(world.spec.model, known)
        if refusal is not None:
            return Target(refusal=refusal), None
        pin = follow(known, world.upstream, now=now)
        target, again_seconds = await self._try(world, pin, now=now, before_asking=before_asking)
        if pin != known and target.refusal is not None and not target.refusal.lasting:
            # The branch moved, and its new commit cannot be looked at for now: what was good stays.
            last, _ = await self._try(world, known, now=now, before_asking=before_asking)
            target = replace(last, question=last.question or target.question)
        return target, again_seconds

    async def _try(
        self, world: World, pin: Pin | None, *, now: datetime, before_asking: Announce
    ) -> tuple[Target, float | None]:
        stored = world.revisions.get(hash_intent(intent_of(world, pin)))
        if stored is not None and pin is not None:
            return Target(pin=pin, revision=stored.revision), None
        words, seconds = self._words_of(world, pin), now.timestamp()
        refused = self._refusals.recall(words, now=seconds)
        if refused is not None:
            return refused.target, refused.until - seconds
        target = await self._look_up(world, pin, now=now, before_asking=before_asking)
        if target.refusal is None or not target.refusal.at_hub:
            if not target.question:
                self._refusals.forget(words)
            return target, None
        first = first_delay(world.spec.model, target.refusal)
        return target, self._refusals.remember(words, target, now=seconds, first_seconds=first)

    async def _look_up(
        self, world: World, pin: Pin | None, *, now: datetime, before_asking: Announce
    ) -> Target:
        if world.spec.suspend and (pin is None or needs_resolver(world.spec.model)):
            message = f"spec.suspend is true: {world.spec.model.uri} is looked up when it no longer is"
            suspended = Refusal(reason="Suspended", message=message, lasting=False, waits=True)
            return Target(pin=pin, refusal=suspended)
        answer = await self._lookup.find(world, pin, now=now, before_asking=before_asking)
        if answer.refusal is not None or answer.pin is None:
            return Target(pin=answer.pin, refusal=answer.refusal, question=answer.question)
        plan = plan_revision(world.spec, json.loads(answer.config))
        if isinstance(plan, Refusal):
            return Target(pin=answer.pin, refusal=plan, config=answer.config)
        revision = self._build_revision(world, answer.pin, plan)
        return Target(pin=answer.pin, revision=revision, config=answer.config)

    def _build_revision(self, world: World, pin: Pin, plan: MemoryPlan) -> Revision:
        return build_revision(
            world,
            pin,
            plan,
            engine_image=self._settings.engine_image,
            hub_endpoint=self._settings.hub_endpoint,
        )

    def _words_of(self, world: World, pin: Pin | None) -> Words:
        """What is asked: of the hub for all services together, of a pod for each on its own.

        Whatever is edited of what a pod is made from is another question: nobody waits for the old one.
        """
        model, owner = world.spec.model, world.owner
        if needs_resolver(model):
            return owner.namespace, owner.name, self._lookup.question_of(world, pin).id
        commit = pin.commit if pin is not None and pin.tracked else ""
        return model.uri, model.revision, model.refresh_token, commit


def first_delay(model: ModelSource, refusal: Refusal) -> float:
    """A question to the hub costs nothing; a pod is an image, a place on a node, and a quota's share."""
    return RESOLVER_FIRST_SECONDS if needs_resolver(model) and not refusal.waits else FIRST_DELAY_SECONDS
