"""From words to a commit and its config.json: asked of the hub, or of a resolver pod that may see more."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from octavo.model_report import ModelReport
from octavo_operator.api.spec import ModelSource
from octavo_operator.decide.conditions import format_time
from octavo_operator.decide.kept_configs import recall_config
from octavo_operator.decide.pinning import (
    is_commit,
    is_tracked,
    refuse_report,
    repository_of,
    with_manifest,
)
from octavo_operator.decide.resolving import read_lookup
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin
from octavo_operator.desired.resolver_pod import Question, needs_resolver
from octavo_operator.shell.hub import Hub
from octavo_operator.shell.hub_manifest import Manifests
from octavo_operator.shell.resolver_pods import ResolverPods
from octavo_operator.shell.seen_commits import SeenCommit, SeenCommits
from octavo_operator.shell.settings import Settings
from octavo_operator.shell.upstream import UpstreamWatch

Announce = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A commit with its config.json, or as far as that went and what stood in the way."""

    pin: Pin | None = None
    config: str = ""
    refusal: Refusal | None = None
    question: str = ""
    """Of a resolver pod that has not said all yet."""


class Lookup:
    """Asks as little as it can: a commit's config.json is remembered."""

    def __init__(
        self,
        settings: Settings,
        hub: Hub,
        manifests: Manifests,
        resolver_pods: ResolverPods,
        upstream: UpstreamWatch,
    ) -> None:
        self._settings = settings
        self._hub = hub
        self._manifests = manifests
        self._resolver_pods = resolver_pods
        self._upstream = upstream
        self._seen = SeenCommits()

    async def find(self, world: World, pin: Pin | None, *, now: datetime, before_asking: Announce) -> Answer:
        """`pin` is what the words were resolved to before; its commit is looked up, never another one."""
        seen = self._recall(world, pin) if pin is not None else None
        if pin is not None and seen is not None:
            return answer_of(pin, seen)
        if needs_resolver(world.spec.model):
            return await self._ask_pod(world, pin, now=now)
        await before_asking()
        return await self._ask_hub(world.spec.model, pin, now=now)

    def _recall(self, world: World, pin: Pin) -> SeenCommit | None:
        """What this process saw, or an earlier one kept."""
        seen = self._seen.recall(pin.uri, pin.commit)
        if seen is not None:
            return seen
        config = recall_config(world.configs, pin.commit) if pin.manifest_digest else None
        if config is None:
            return None
        seen = SeenCommit(config=config, manifest_digest=pin.manifest_digest, size_bytes=pin.size_bytes)
        self._seen.remember(pin.uri, pin.commit, seen)
        return seen

    # The hub --------------------------------------------------------------------------------------
    async def _ask_hub(self, model: ModelSource, pin: Pin | None, *, now: datetime) -> Answer:
        resolved = pin or await self._resolve(model, now=now)
        if isinstance(resolved, Refusal):
            return Answer(refusal=resolved)
        seen = self._seen.recall(model.uri, resolved.commit) or await self._read(model.uri, resolved)
        return Answer(pin=resolved, refusal=seen) if isinstance(seen, Refusal) else answer_of(resolved, seen)

    async def _read(self, uri: str, pin: Pin) -> SeenCommit | Refusal:
        config = await self._hub.read_config(repository_of(uri), pin.commit)
        if isinstance(config, Refusal):
            return config
        digest, size = pin.manifest_digest, pin.size_bytes
        if not digest:
            manifest = await self._manifests.read(repository_of(uri), pin.commit)
            if isinstance(manifest, Refusal):
                return manifest
            digest, size = manifest.digest, manifest.size_bytes
        seen = SeenCommit(config=config, manifest_digest=digest, size_bytes=size)
        self._seen.remember(uri, pin.commit, seen)
        return seen

    async def _resolve(self, model: ModelSource, *, now: datetime) -> Pin | Refusal:
        """A commit is asked for too: that it exists is worth knowing before a pod does."""
        commit = await self._hub.resolve(repository_of(model.uri), model.revision)
        if isinstance(commit, Refusal):
            return commit
        if is_commit(model.revision) and commit != model.revision:
            message = f"{model.uri} at {model.revision}: the hub answered with another commit, {commit}"
            return Refusal(reason="RevisionMismatch", message=message, at_hub=True)
        self._upstream.learn((model.uri, model.revision), commit)
        return make_pin(model, commit, now=now)

    # A resolver pod -------------------------------------------------------------------------------
    def question_of(self, world: World, pin: Pin | None) -> Question:
        """What a pod would look up: the words, or the commit that they have come to mean."""
        return Question(
            model=world.spec.model,
            revision=pin.commit if pin is not None else world.spec.model.revision,
            image=world.spec.engine.image or self._settings.engine_image,
            hub_endpoint=self._settings.hub_endpoint,
            overlay=world.spec.template,
        )

    async def _ask_pod(self, world: World, pin: Pin | None, *, now: datetime) -> Answer:
        model, question = world.spec.model, self.question_of(world, pin)
        what = f"{model.uri} at {question.revision}"
        view = next((one for one in world.resolvers if one.question == question.id), None)
        if view is None:
            started = await self._resolver_pods.start(world.owner, question, what)
            return Answer(pin=pin, refusal=started, question=question.id)
        lookup = read_lookup(view, what)
        if lookup.report is None:
            return Answer(pin=pin, refusal=lookup.refusal, question="" if lookup.ended else question.id)
        return self._take_report(model, pin, lookup.report, now=now)

    def _take_report(
        self, model: ModelSource, pin: Pin | None, report: ModelReport, *, now: datetime
    ) -> Answer:
        found = pin or make_pin(model, report.commit, now=now)
        refusal = refuse_report(found, report)
        if refusal is not None:
            return Answer(pin=found, refusal=refusal)
        return answer_of(found, self.learn(model.uri, report))

    def learn(self, uri: str, report: ModelReport) -> SeenCommit:
        """No other pod need look at this commit."""
        seen = SeenCommit(
            config=json.dumps(report.config),
            manifest_digest=report.manifest_digest,
            size_bytes=report.size_bytes,
        )
        self._seen.remember(uri, report.commit, seen)
        return seen


def answer_of(pin: Pin, seen: SeenCommit) -> Answer:
    return Answer(pin=with_manifest(pin, seen.manifest_digest, seen.size_bytes), config=seen.config)


def make_pin(model: ModelSource, commit: str, *, now: datetime) -> Pin:
    return Pin(
        uri=model.uri,
        revision=model.revision,
        refresh_token=model.refresh_token,
        commit=commit,
        resolved_at=format_time(now),
        tracked=is_tracked(model),
    )
