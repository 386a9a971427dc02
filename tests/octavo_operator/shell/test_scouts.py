"""Followed branches of private repositories: seldom a pod, never two, and no answer changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from octavo.model_report import ModelReport, encode_model_report
from octavo_operator.decide.model_conditions import judge_drifted
from octavo_operator.decide.next_state import build_resolver_removals
from octavo_operator.decide.resolving import ResolverView, parse_resolver
from octavo_operator.decide.target import Refusal
from octavo_operator.decide.upstream import Upstream
from octavo_operator.decide.world import World
from octavo_operator.desired.metadata import Owner
from octavo_operator.shell.cache import Cache
from octavo_operator.shell.kube import ApiRefused
from octavo_operator.shell.lookup import Lookup
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.resolver_pods import ResolverPods
from octavo_operator.shell.scouts import SCOUTS_AT_ONCE, Scouting, Scouts, with_scouting
from octavo_operator.shell.settings import read_settings
from octavo_operator.shell.targets import Targets
from tests.octavo_operator.builders import (
    COMMIT,
    CONFIG,
    NOW,
    URI,
    make_pin,
    make_spec,
    make_target,
    make_world,
)
from tests.octavo_operator.shell.asking import make_upstream
from tests.octavo_operator.shell.test_targets import FakeHub, FakeKube, FakeManifests

NEXT = "f" * 40
HIDDEN = Upstream(refusal=Refusal(reason="RepositoryNotFound", message="it is private", at_hub=True))
INTERVAL = 1800.0
FOLLOWED = make_spec(
    model={"uri": URI, "revisionPolicy": "Track", "credentialsSecretRef": {"name": "hf-token"}}
)


@dataclass
class Play:
    """One service that follows a private branch, passed over and over."""

    jitter: float = 0.0
    now: datetime = NOW
    kube: FakeKube = field(default_factory=FakeKube)
    pods: list[dict[str, Any]] = field(default_factory=list)
    world: World = field(
        default_factory=lambda: make_world(spec=FOLLOWED, pins=(make_pin(FOLLOWED),), upstream=HIDDEN)
    )

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        settings, hub = read_settings({"OCTAVO_ENGINE_IMAGE": "engine:1"}), FakeHub()
        resolver_pods = ResolverPods(kube=self.kube, cache=Cache(), meters=Meters())
        upstream = make_upstream(hub.resolve)
        self.lookup = Lookup(settings, hub, FakeManifests(hub), resolver_pods, upstream)
        self.targets = Targets(settings, self.lookup, draw_jitter=lambda: 0.0)
        self.scouts = Scouts(
            lookup=self.lookup,
            resolver_pods=resolver_pods,
            interval_seconds=INTERVAL,
            draw_jitter=lambda: self.jitter,
        )

    def look(self, owner: Owner | None = None) -> Scouting:
        """A pass; what it starts and removes is there, or gone, for the next one."""
        seen = replace(self.world, resolvers=tuple(map(parse_resolver, self.pods)))
        seen = seen if owner is None else replace(seen, owner=owner)
        scouting = asyncio.run(self.scouts.look(seen, now=self.now))
        self.seen = with_scouting(seen, scouting)
        gone = {one.name for one in build_resolver_removals(self.seen, make_target(FOLLOWED))}
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] not in gone]
        for pod in self.kube.made:
            pod["metadata"]["creationTimestamp"] = self.now.isoformat()
            self.pods.append(pod)
        self.kube.made.clear()
        return scouting

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def resolver(self) -> ResolverView:
        (pod,) = self.pods
        return parse_resolver(pod)

    def end(self, phase: str, message: str) -> None:
        ended = {"terminated": {"exitCode": 1, "message": message}}
        self.pods[0]["status"] = {
            "phase": phase,
            "containerStatuses": [{"name": "resolve", "state": ended}],
        }

    def answer(self, commit: str) -> None:
        report = ModelReport(
            commit=commit, manifest_digest=f"sha256:{'ab' * 32}", size_bytes=7, config=CONFIG
        )
        self.end("Succeeded", encode_model_report(report))


def test_private_branch_that_moved_is_followed_by_one_pod() -> None:
    """It was not followed at all, and only a condition hinted at it."""
    play = Play()
    assert play.look().question == play.resolver().question
    assert play.look().question, "one pod is enough"
    assert len(play.pods) == 1
    play.answer(NEXT)
    scouting = play.look()
    assert scouting.upstream == Upstream(commit=NEXT)
    assert play.pods == []

    async def ignore() -> None:
        pass

    target, _ = asyncio.run(play.targets.find(play.seen, now=play.now, before_asking=ignore))
    assert target.revision is not None, "no second pod looks at the commit"
    assert target.revision.commit == NEXT
    assert play.kube.made == []


def test_next_pod_comes_after_the_interval_and_later_after_a_failure() -> None:
    play = Play()
    play.look()
    play.answer(COMMIT)
    assert play.look().again_seconds == INTERVAL
    play.later(INTERVAL - 1)
    play.look()
    assert play.pods == []
    play.later(1)
    play.look()
    play.end("Failed", '{"reason": "HubUnavailable", "message": "unreachable"}')
    assert play.look().again_seconds == 2 * INTERVAL
    play.later(2 * INTERVAL)
    play.look()
    assert play.resolver()


@pytest.mark.parametrize("reason", ["HubUnavailable", "AccessDenied"])
def test_failed_look_unpins_nothing(reason: str) -> None:
    play = Play()
    play.look()
    play.answer(COMMIT)
    play.look()
    play.later(INTERVAL)
    play.look()
    play.end("Failed", f'{{"reason": "{reason}", "message": "no"}}')
    scouting = play.look()
    assert scouting.upstream is not None
    assert scouting.upstream.commit == COMMIT
    told = judge_drifted(FOLLOWED.model, make_pin(FOLLOWED), scouting.upstream, None)
    assert told.reason == ("UpToDate" if reason == "HubUnavailable" else "UpstreamUnknown")
    assert f"stays at {COMMIT}" in told.message or told.status == "False"


def test_failed_pod_that_stays_counts_once() -> None:
    """A suspended service removes nothing."""
    play = Play()
    play.look()
    play.end("Failed", '{"reason": "HubUnavailable", "message": "unreachable"}')
    pods = list(play.pods)
    for _ in range(5):
        play.pods = list(pods)
        assert play.look().again_seconds == 2 * INTERVAL


def test_pod_that_no_node_takes_is_given_up_after_its_deadline() -> None:
    play = Play()
    play.look()
    assert play.look().again_seconds == 300.0
    play.later(300.0)
    assert play.look().question == ""
    assert play.pods == []


def test_restart_starts_no_storm_and_hears_the_pod_that_is_out() -> None:
    play = Play(jitter=0.5)
    assert play.look().again_seconds == 0.5 * INTERVAL, "anywhere in the first interval"
    assert play.pods == []
    play.later(0.5 * INTERVAL)
    play.look()
    play.restart()
    play.look()
    play.answer(NEXT)
    assert play.look().upstream == Upstream(commit=NEXT)


def test_hundred_services_have_a_few_pods_at_once() -> None:
    play, sent = Play(), 0
    for number in range(100):
        play.pods.clear()  # each service sees its own
        sent += bool(play.look(Owner(namespace="prod", name=f"chat-{number}", uid=str(number))).question)
    assert sent == SCOUTS_AT_ONCE


@pytest.mark.parametrize(
    ("spec", "upstream"),
    [
        pytest.param(FOLLOWED, Upstream(commit=COMMIT), id="gated, but shown to all"),
        pytest.param(FOLLOWED, None, id="not asked yet"),
        pytest.param(
            FOLLOWED, Upstream(refusal=Refusal(reason="RevisionNotFound", message="")), id="branch is gone"
        ),
        pytest.param(make_spec(model={"uri": URI, "revisionPolicy": "Track"}), HIDDEN, id="no token"),
        pytest.param(
            make_spec(model={"uri": URI, "credentialsSecretRef": {"name": "hf-token"}}),
            HIDDEN,
            id="not followed",
        ),
    ],
)
def test_nobody_is_sent_where_no_pod_is_needed(spec: Any, upstream: Upstream | None) -> None:
    play = Play(world=make_world(spec=spec, upstream=upstream))
    assert play.look() == Scouting()
    assert play.pods == []


def test_suspended_service_sends_nobody() -> None:
    play = Play()
    suspended = FOLLOWED.model_copy(update={"suspend": True})
    play.world = replace(play.world, spec=suspended, revisions={})
    play.look()
    assert play.pods == []


def test_quota_that_refuses_the_pod_is_not_fought() -> None:
    play = Play()
    play.kube.refuse = ApiRefused(403, "exceeded quota")
    assert play.look().again_seconds == 2 * INTERVAL


def test_pod_of_the_last_look_that_is_still_going_is_waited_for() -> None:
    play = Play()
    play.kube.refuse = ApiRefused(409, "object is being deleted")
    assert play.look().again_seconds == 20.0
    play.kube.refuse = None
    play.later(20.0)
    assert play.look().question
