"""Follows branches of private repositories: now and then a resolver pod looks what one stands for by now.

Only under Track, with credentials, and only where the hub shows the repository to nobody without a token;
all else is asked by `UpstreamWatch`, which costs no pod. A pod is dear, so that a service has one at most,
seldom, all services together a few at once, and after a failure it takes longer until the next. Whatever a
scout does not find out changes nothing. Lost with the process: then each asks anew within its first interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from octavo_operator.decide.pinning import is_commit
from octavo_operator.decide.resolving import RESOLVER_FAILED, RESOLVER_TIMEOUT, ResolverView, read_lookup
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import Upstream, needs_scout, next_question_seconds, remember_answer
from octavo_operator.decide.world import World
from octavo_operator.desired.resolver_pod import HUB_DEADLINE_SECONDS, Question
from octavo_operator.shell.cache import Key
from octavo_operator.shell.lookup import Lookup
from octavo_operator.shell.resolver_pods import ResolverPods

SCOUTS_AT_ONCE: Final = 4
QUEUE_SECONDS: Final = 20.0
"""Before a service looks again whether it is its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scouting:
    """What is known of a branch that a service follows, and what is under way."""

    upstream: Upstream | None = None
    """None: it is not for scouts to say."""
    question: str = ""
    """Of the pod that is to stay."""
    again_seconds: float | None = None


@dataclass(slots=True)
class Scout:
    """The words that one service follows."""

    question: str
    due: float
    failures: int = 0
    is_out: bool = False
    heard: float | None = None
    """When the pod was made that spoke last; it may stay for a while, and counts once."""
    upstream: Upstream = field(default_factory=Upstream)


class Scouts:
    """Used by one event loop. An interval of 0: nobody is ever sent."""

    def __init__(
        self,
        *,
        lookup: Lookup,
        resolver_pods: ResolverPods,
        interval_seconds: float,
        draw_jitter: Callable[[], float],
    ) -> None:
        self._lookup = lookup
        self._resolver_pods = resolver_pods
        self._interval = interval_seconds
        self._draw_jitter = draw_jitter
        self._scouts: dict[Key, Scout] = {}

    def forget(self, key: Key) -> None:
        self._scouts.pop(key, None)

    async def look(self, world: World, *, now: datetime) -> Scouting:
        """Take an answer, send somebody whose time has come, or wait."""
        key, seconds = (world.owner.namespace, world.owner.name), now.timestamp()
        if not self._interval or not needs_scout(world.spec.model, world.upstream):
            self.forget(key)
            return Scouting()
        question = self._lookup.question_of(world, None)
        scout = self._scout_of(key, question, now=seconds)
        view = find_pod(world, question)
        if view is None and scout.is_out:
            self._fail(scout, vanished(), now=seconds)
        if view is not None and view.pod.created_at != scout.heard:
            self._hear(scout, view, world, now=seconds)
        elif view is None and scout.due <= seconds and not world.spec.suspend:
            await self._send(scout, question, world, now=seconds)
        wait = max(0.0, scout.due - seconds)
        return Scouting(
            upstream=scout.upstream, question=question.id if scout.is_out else "", again_seconds=wait or None
        )

    def _scout_of(self, key: Key, question: Question, *, now: float) -> Scout:
        """Other words, another Secret or another place to run: the question is a new one."""
        known = self._scouts.get(key)
        if known is None or known.question != question.id:
            known = Scout(question=question.id, due=now + self._interval * self._draw_jitter())
            self._scouts[key] = known
        return known

    async def _send(self, scout: Scout, question: Question, world: World, *, now: float) -> None:
        if sum(one.is_out for one in self._scouts.values()) >= SCOUTS_AT_ONCE:
            scout.due = now + QUEUE_SECONDS * (1 + self._draw_jitter())
            return
        what = f"{question.model.uri} at {question.revision}"
        refusal = await self._resolver_pods.start(world.owner, question, what)
        if refusal.waits and not refusal.at_hub:
            scout.is_out, scout.due = True, now + HUB_DEADLINE_SECONDS
        elif refusal.waits:
            scout.due = now + QUEUE_SECONDS
        else:
            self._fail(scout, refusal, now=now)

    def _hear(self, scout: Scout, view: ResolverView, world: World, *, now: float) -> None:
        """Of one that an earlier process sent, too."""
        lookup = read_lookup(view, f"{world.spec.model.uri} at {world.spec.model.revision}")
        is_late = now >= view.pod.created_at + HUB_DEADLINE_SECONDS
        if not lookup.ended and not is_late:
            scout.is_out, scout.due = True, view.pod.created_at + HUB_DEADLINE_SECONDS
            return
        scout.heard = view.pod.created_at
        if lookup.report is not None and is_commit(lookup.report.commit):
            self._lookup.learn(world.spec.model.uri, lookup.report)
            self._schedule(scout, failures=0, now=now)
            scout.upstream = remember_answer(scout.upstream, lookup.report.commit)
        else:
            self._fail(scout, lookup.refusal or unreadable(view), now=now)

    def _fail(self, scout: Scout, refusal: Refusal, *, now: float) -> None:
        scout.upstream = remember_answer(scout.upstream, refusal)
        self._schedule(scout, failures=scout.failures + 1, now=now)

    def _schedule(self, scout: Scout, *, failures: int, now: float) -> None:
        scout.is_out, scout.failures = False, failures
        scout.due = now + next_question_seconds(self._interval, failures, self._draw_jitter())


def find_pod(world: World, question: Question) -> ResolverView | None:
    """One that is there to stay: the last one's name is taken for a moment longer."""
    return next(
        (one for one in world.resolvers if one.question == question.id and not one.pod.terminating), None
    )


def vanished() -> Refusal:
    message = "the resolver pod was deleted before it said anything"
    return Refusal(reason=RESOLVER_TIMEOUT, message=message, lasting=False)


def unreadable(view: ResolverView) -> Refusal:
    message = f"pod {view.pod.name} names no commit; is its image an Octavo engine of this version?"
    return Refusal(reason=RESOLVER_FAILED, message=message, lasting=False)


def with_scouting(world: World, scouting: Scouting) -> World:
    """What a scout knows stands for what the hub tells nobody without a token."""
    upstream = world.upstream if scouting.upstream is None else scouting.upstream
    return replace(world, upstream=upstream, scouting=scouting.question)
