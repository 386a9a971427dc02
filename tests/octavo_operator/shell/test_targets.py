"""From spec to a target: what is remembered, what is asked, and what an outage changes: nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from octavo.model_report import ModelReport, encode_model_report
from octavo_operator.decide.kept_configs import keep_config
from octavo_operator.decide.next_state import build_resolver_removals
from octavo_operator.decide.pinning import add_pin
from octavo_operator.decide.resolving import ResolverView, parse_resolver
from octavo_operator.decide.target import Refusal, Target
from octavo_operator.decide.upstream import Upstream
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin
from octavo_operator.shell.cache import Cache
from octavo_operator.shell.hub import Hub
from octavo_operator.shell.hub_manifest import Manifest, Manifests
from octavo_operator.shell.kube import ApiRefused, Kube
from octavo_operator.shell.lookup import Lookup
from octavo_operator.shell.meters import Meters
from octavo_operator.shell.resolver_pods import ResolverPods
from octavo_operator.shell.settings import read_settings
from octavo_operator.shell.targets import Targets
from tests.octavo_operator.builders import (
    COMMIT,
    CONFIG,
    NOW,
    URI,
    make_pin,
    make_spec,
    make_stored,
    make_world,
)
from tests.octavo_operator.shell.asking import make_upstream

NEXT = "f" * 40
DIGEST = f"sha256:{'ab' * 32}"
OTHER_DIGEST = f"sha256:{'cd' * 32}"
OUTAGE = Refusal(reason="HubUnavailable", message="unreachable", lasting=False, at_hub=True)
ValueT = TypeVar("ValueT")


class FakeHub(Hub):
    """Knows one repository, or is out of order."""

    def __init__(self) -> None:
        self.commit = COMMIT
        self.outage = False
        self.config: Any = CONFIG
        self.asked: list[str] = []

    async def resolve(self, repository: str, revision: str) -> str | Refusal:
        self.asked.append(f"resolve {revision}")
        return OUTAGE if self.outage else self.commit

    async def read_config(self, repository: str, commit: str) -> str | Refusal:
        self.asked.append(f"config {commit}")
        return OUTAGE if self.outage else json.dumps(self.config)


class FakeManifests(Manifests):
    def __init__(self, hub: FakeHub) -> None:
        self.hub = hub

    async def read(self, repository: str, commit: str) -> Manifest | Refusal:
        self.hub.asked.append(f"files {commit}")
        return OUTAGE if self.hub.outage else Manifest(digest=DIGEST, size_bytes=9)


class FakeKube(Kube):
    """Makes pods, or refuses to."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.created: list[str] = []
        self.refuse: ApiRefused | None = None

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["kind"] == "NetworkPolicy":
            return self.answer(manifest)
        if self.refuse is not None:
            raise self.refuse
        self.made.append(manifest)
        return self.answer(manifest)

    def answer(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.created.append(manifest["kind"])
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "p", "resourceVersion": "1"}}


@dataclass
class Play:
    """One service, passed over and over; what a pass wants is what the next one finds."""

    world: World
    hub: FakeHub = field(default_factory=FakeHub)
    kube: FakeKube = field(default_factory=FakeKube)
    now: datetime = NOW
    targets: Targets = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        settings = read_settings({"OCTAVO_ENGINE_IMAGE": "engine:1"})
        pods = ResolverPods(kube=self.kube, cache=Cache(), meters=Meters())
        lookup = Lookup(settings, self.hub, FakeManifests(self.hub), pods, make_upstream(self.hub.resolve))
        self.targets = Targets(settings, lookup, draw_jitter=lambda: 0.0)

    def look(self) -> Target:
        target, _ = self.look_twice()
        return target

    def look_twice(self) -> tuple[Target, float | None]:
        async def ignore() -> None:
            pass

        found = run(self.targets.find(self.world, now=self.now, before_asking=ignore))
        target = found[0]
        if target.pin is not None:
            pins = add_pin(self.world.pins, target.pin)
            kept = keep_config(self.world.configs, pins, commit=target.pin.commit, config=target.config)
            self.world = replace(self.world, pins=pins, configs=kept)
        gone = {removal.name for removal in build_resolver_removals(self.world, target)}
        made = [parse_resolver(pod) for pod in self.kube.made]
        self.kube.made.clear()
        left = tuple(view for view in self.world.resolvers if view.pod.name not in gone)
        self.world = replace(self.world, resolvers=(*left, *made))
        return found

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def resolver(self) -> ResolverView:
        (view,) = self.world.resolvers
        return view

    def end_resolver(self, phase: str, message: str) -> None:
        body = {
            "metadata": {
                "name": self.resolver().pod.name,
                "labels": {"octavo.dev/question": self.resolver().question},
                "ownerReferences": [{"controller": True, "uid": self.world.owner.uid}],
            },
            "status": {
                "phase": phase,
                "containerStatuses": [
                    {"name": "resolve", "state": {"terminated": {"exitCode": 1, "message": message}}}
                ],
            },
        }
        self.world = replace(self.world, resolvers=(parse_resolver(body),))


def run(coroutine: Coroutine[Any, Any, ValueT]) -> ValueT:
    return asyncio.run(coroutine)


def play(*pins: Pin, **model: Any) -> Play:
    return Play(world=make_world(spec=make_spec(model={"uri": URI, **model}), pins=pins))


def reason_of(target: Target) -> str:
    assert target.refusal is not None
    return target.refusal.reason


def commit_of(target: Target) -> str:
    assert target.revision is not None, target.refusal
    return target.revision.commit


# The hub --------------------------------------------------------------------------------------------
def test_words_are_resolved_once_and_every_pod_is_told_the_digest_of_the_files() -> None:
    stage = play()
    target = stage.look()
    assert commit_of(target) == COMMIT
    assert target.pin is not None
    assert (target.pin.manifest_digest, target.pin.size_bytes) == (DIGEST, 9)
    assert target.revision is not None
    args = target.revision.template["spec"]["initContainers"][0]["args"]
    assert args[args.index("--manifest-digest") + 1] == DIGEST
    stage.hub.commit = NEXT
    asked = list(stage.hub.asked)
    assert commit_of(stage.look()) == COMMIT
    assert stage.hub.asked == asked, "nothing is asked twice"
    stage.restart()
    stage.hub.outage = True
    assert commit_of(stage.look()) == COMMIT
    assert stage.hub.asked == asked, "digest and configuration are kept"


def test_thousand_services_with_the_same_words_read_one_configuration() -> None:
    stage = play()
    stage.look()
    stage.world = make_world(spec=make_spec(model={"uri": URI}))
    assert commit_of(stage.look()) == COMMIT
    questions = [f"config {COMMIT}", f"files {COMMIT}"]
    assert stage.hub.asked == ["resolve main", *questions, "resolve main"]


def test_configuration_that_was_not_kept_is_read_again_at_the_pinned_commit() -> None:
    stage = play()
    stage.look()
    stage.world = replace(stage.world, configs={COMMIT: "damaged"})
    stage.hub.commit = NEXT
    stage.hub.asked.clear()
    stage.restart()
    assert commit_of(stage.look()) == COMMIT
    assert stage.hub.asked == [f"config {COMMIT}"]


def test_outage_refuses_only_words_that_were_never_resolved() -> None:
    stage = play()
    stage.hub.outage = True
    target, seconds = stage.look_twice()
    assert reason_of(target) == "HubUnavailable"
    assert seconds == 1.0
    asked = len(stage.hub.asked)
    assert reason_of(stage.look()) == "HubUnavailable"
    assert len(stage.hub.asked) == asked, "not before its time"
    stage.later(1.0)
    assert stage.look_twice()[1] == 2.0
    stage.hub.outage = False
    stage.later(2.0)
    assert commit_of(stage.look()) == COMMIT


def test_hub_that_answers_with_another_commit_is_refused() -> None:
    stage = play(revision=NEXT)
    assert reason_of(stage.look()) == "RevisionMismatch"


def test_unpinned_words_are_never_asked_for_when_the_policy_requires_pinned_ones() -> None:
    stage = play(revisionPolicy="RequirePinned")
    target = stage.look()
    assert (reason_of(target), target.pin, stage.hub.asked) == ("RevisionNotPinned", None, [])


# Following -----------------------------------------------------------------------------------------
def moved(stage: Play, commit: str) -> None:
    stage.world = replace(stage.world, upstream=Upstream(commit=commit))


def test_followed_branch_makes_a_new_revision_when_it_moves_and_returns_when_it_is_moved_back() -> None:
    stage = play(revisionPolicy="Track")
    first = stage.look()
    moved(stage, NEXT)
    second = stage.look()
    moved(stage, COMMIT)
    third = stage.look()
    assert [commit_of(one) for one in (first, second, third)] == [COMMIT, NEXT, COMMIT]
    assert first.revision is not None
    assert second.revision is not None
    assert third.revision is not None
    assert first.revision.hash == third.revision.hash != second.revision.hash
    assert [pin.commit for pin in stage.world.pins] == [COMMIT, NEXT, COMMIT], "the ledger keeps history"


def test_followed_branch_stays_where_it_was_while_its_new_commit_cannot_be_looked_at() -> None:
    stage = play(revisionPolicy="Track")
    first = stage.look()
    assert first.revision is not None
    stage.world = replace(stage.world, revisions={first.revision.hash: make_stored(first.revision)})
    stage.hub.outage = True
    moved(stage, NEXT)
    target, seconds = stage.look_twice()
    assert commit_of(target) == COMMIT
    assert seconds is not None
    assert [pin.commit for pin in stage.world.pins] == [COMMIT]
    stage.hub.outage = False
    stage.later(seconds)
    assert commit_of(stage.look()) == NEXT


def test_followed_commit_that_can_never_serve_is_told() -> None:
    stage = play(revisionPolicy="Track")
    stage.look()
    stage.hub.config = {"model_type": "no-such-model"}
    moved(stage, NEXT)
    assert reason_of(stage.look()) == "UnsupportedModel"


def test_branch_that_moved_changes_nothing_when_it_is_not_followed() -> None:
    stage = play()
    stage.look()
    moved(stage, NEXT)
    assert commit_of(stage.look()) == COMMIT


# Resolver pods -------------------------------------------------------------------------------------
def report(commit: str = COMMIT, digest: str = DIGEST) -> str:
    return encode_model_report(
        ModelReport(commit=commit, manifest_digest=digest, size_bytes=7, config=CONFIG)
    )


GATED = {"credentialsSecretRef": {"name": "hf-token"}}


def test_gated_repository_is_looked_up_by_a_pod_and_never_by_the_operator() -> None:
    stage = play(**GATED)
    target = stage.look()
    assert reason_of(target) == "Resolving"
    question = stage.resolver().question
    assert target.question == question
    assert reason_of(stage.look()) == "Resolving", "one pod is enough"
    assert stage.kube.created == ["NetworkPolicy", "Pod"], "it is fenced in before it starts"
    stage.end_resolver("Succeeded", report())
    done = stage.look()
    assert commit_of(done) == COMMIT
    assert done.pin is not None
    assert (done.pin.manifest_digest, done.pin.size_bytes) == (DIGEST, 7)
    assert stage.world.resolvers == (), "its report was taken"
    assert stage.hub.asked == []
    assert commit_of(stage.look()) == COMMIT
    assert stage.world.resolvers == (), "and is remembered"


def test_failed_resolver_is_removed_and_another_one_started_after_a_while() -> None:
    """The second pod came after a second: pods are dear, and refusals of a hub last."""
    stage = play(**GATED)
    stage.look()
    stage.end_resolver("Failed", '{"reason": "AccessDenied", "message": "accept its terms"}')
    target, seconds = stage.look_twice()
    assert reason_of(target) == "AccessDenied"
    assert seconds == 15.0
    assert stage.world.resolvers == ()
    assert reason_of(stage.look()) == "AccessDenied"
    assert stage.world.resolvers == (), "not before its time"
    stage.later(15.0)
    assert reason_of(stage.look()) == "Resolving"
    stage.end_resolver("Failed", '{"reason": "AccessDenied", "message": "accept its terms"}')
    assert stage.look_twice()[1] == 30.0, "longer each time"


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"model": {"uri": URI, **GATED, "refreshToken": "2"}}, id="refresh token"),
        pytest.param({"model": {"uri": URI, "credentialsSecretRef": {"name": "new"}}}, id="secret"),
        pytest.param({"engine": {"image": "engine:2"}}, id="image"),
        pytest.param({"template": {"spec": {"nodeSelector": {"pool": "models"}}}}, id="where it may run"),
    ],
)
def test_edit_after_a_failed_resolver_starts_another_at_once(edit: dict[str, Any]) -> None:
    stage = play(**GATED)
    stage.look()
    stage.end_resolver("Failed", '{"reason": "AccessDenied", "message": "accept its terms"}')
    stage.look()
    assert reason_of(stage.look()) == "AccessDenied"
    stage.world = replace(stage.world, spec=make_spec(**{"model": {"uri": URI, **GATED}, **edit}))
    assert reason_of(stage.look()) == "Resolving"
    assert stage.world.resolvers


def test_new_commit_of_a_followed_gated_branch_is_looked_up_while_the_last_good_stays() -> None:
    stage = play(revisionPolicy="Track", **GATED)
    stage.look()
    stage.end_resolver("Succeeded", report())
    first = stage.look()
    assert first.revision is not None
    stage.world = replace(stage.world, revisions={first.revision.hash: make_stored(first.revision)})
    moved(stage, NEXT)
    assert commit_of(stage.look()) == COMMIT
    assert commit_of(stage.look()) == COMMIT
    assert stage.resolver().question, "the pod goes on"
    stage.end_resolver("Succeeded", report(commit=NEXT))
    assert commit_of(stage.look()) == NEXT


def test_edit_of_other_fields_needs_no_pod_after_a_restart() -> None:
    """A volume would be read to its last byte again."""
    stage = play(uri="pvc://models/qwen")
    stage.look()
    stage.end_resolver("Succeeded", report(commit=DIGEST))
    stage.look()
    stage.restart()
    stage.world = replace(
        stage.world, spec=make_spec(model={"uri": "pvc://models/qwen"}, engine={"maxSequences": 2})
    )
    assert commit_of(stage.look()) == DIGEST
    assert stage.world.resolvers == ()


def test_edit_of_the_words_takes_the_pod_of_the_earlier_ones_away() -> None:
    stage = play(**GATED)
    stage.look()
    first = stage.resolver().question
    stage.world = replace(stage.world, spec=make_spec(model={"uri": URI, "revision": "v2", **GATED}))
    stage.look()
    assert stage.resolver().question != first


def test_known_commit_is_looked_up_again_by_its_own_name_after_a_restart() -> None:
    """Another argument needs config.json again; the branch may have moved since."""
    stage = play(make_pin(), **GATED)
    stage.look()
    stage.end_resolver("Succeeded", report(commit=NEXT))
    assert reason_of(stage.look()) == "DigestMismatch"


def test_files_that_changed_under_a_commit_are_refused() -> None:
    pin = replace(make_pin(), manifest_digest=DIGEST, size_bytes=7)
    stage = play(pin, **GATED)
    stage.look()
    stage.end_resolver("Succeeded", report(digest=OTHER_DIGEST))
    target = stage.look()
    assert reason_of(target) == "DigestMismatch"
    assert stage.world.pins == (pin,)


@pytest.mark.parametrize(
    ("uri", "status", "message", "reason", "lasting"),
    [
        (
            "oci://ghcr.io/m/q:1",
            422,
            "spec.volumes[0]: must specify a volume type",
            "ImageVolumeUnsupported",
            True,
        ),
        ("pvc://models/qwen", 403, "exceeded quota", "PodsRefused", False),
        ("pvc://models/qwen", 422, "spec.tolerations[0].operator", "PodsRefused", True),
        ("pvc://models/qwen", 409, "already exists", "Resolving", False),
    ],
    ids=["no image volumes", "quota", "bad overlay", "still there"],
)
def test_cluster_that_refuses_the_pod_is_told(
    uri: str, status: int, message: str, reason: str, lasting: bool
) -> None:
    stage = play(uri=uri)
    stage.kube.refuse = ApiRefused(status, message)
    target, seconds = stage.look_twice()
    assert target.refusal is not None
    assert (target.refusal.reason, target.refusal.lasting) == (reason, lasting)
    assert seconds == (1.0 if status == 409 else 15.0)
    assert target.question, "a pod that was made and not seen yet is not removed"


def test_suspended_service_looks_nothing_up_that_it_could_not_keep() -> None:
    for words in ({}, GATED):
        stage = play(**words)
        stage.world = replace(stage.world, spec=make_spec(model={"uri": URI, **words}, suspend=True))
        assert reason_of(stage.look()) == "Suspended"
        assert (stage.hub.asked, stage.world.resolvers) == ([], ())
    known = play(make_pin())
    known.world = replace(known.world, spec=make_spec(suspend=True))
    assert commit_of(known.look()) == COMMIT


def test_api_server_out_of_order_is_not_the_users_affair() -> None:
    stage = play(**GATED)
    stage.kube.refuse = ApiRefused(500, "etcd has no leader")
    with pytest.raises(ApiRefused):
        stage.look()
