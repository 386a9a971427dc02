"""What surrounds the Deployments: made in order, removed when nothing needs it any more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.observed import Placed
from octavo_operator.decide.surroundings import (
    Sharing,
    build_policies,
    build_surroundings,
    find_missing_kind,
    find_stale,
)
from octavo_operator.decide.world import World
from octavo_operator.desired.difference import difference
from tests.octavo_operator.builders import make_deployment, make_pod, make_revision, make_spec, make_world

ROUTE = {"httpRoute": {"parentRefs": [{"name": "public"}]}}
POOL = {"inferencePool": {"endpointPickerRef": {"name": "epp"}}}
ALL_KINDS = frozenset({"HTTPRoute", "InferencePool"})
HALF = Sharing(weights={"aaa": 90, "bbb": 10}, services=())
ALONE = Sharing(weights={"aaa": 100}, services=())
NOTHING = Sharing(weights={}, services=())


def world_with(routing: dict[str, Any] | None = None, **changes: Any) -> World:
    spec = make_spec(routing=routing) if routing else make_spec()
    return make_world(**{"spec": spec, "served_kinds": ALL_KINDS, **changes})


def named(world: World, sharing: Sharing) -> list[tuple[str, str]]:
    return [(one["kind"], one["metadata"]["name"]) for one in build_surroundings(world, sharing)]


@pytest.mark.parametrize(
    ("routing", "sharing", "made"),
    [
        pytest.param(None, NOTHING, [], id="nothing serves"),
        pytest.param(None, ALONE, ["PodDisruptionBudget chat-aaa"], id="one serves"),
        pytest.param(
            None,
            Sharing(weights={"aaa": 100, "bbb": 0}, services=("bbb",)),
            ["PodDisruptionBudget chat-aaa", "Service chat-bbb"],
            id="candidate before its gates",
        ),
        pytest.param(
            ROUTE,
            HALF,
            [
                "PodDisruptionBudget chat-aaa",
                "PodDisruptionBudget chat-bbb",
                "Service chat-aaa",
                "Service chat-bbb",
                "HTTPRoute chat",
            ],
            id="canary by route",
        ),
        pytest.param(
            {**ROUTE, **POOL},
            ALONE,
            ["PodDisruptionBudget chat-aaa", "InferencePool chat-aaa", "HTTPRoute chat"],
            id="pool behind the route",
        ),
        pytest.param(
            POOL,
            ALONE,
            ["PodDisruptionBudget chat-aaa", "InferencePool chat-aaa"],
            id="pool for somebody else's route",
        ),
        pytest.param(ROUTE, NOTHING, [], id="no route without a backend"),
    ],
)
def test_surroundings_are_what_the_shares_need(
    routing: dict[str, Any] | None, sharing: Sharing, made: list[str]
) -> None:
    assert [f"{kind} {name}" for kind, name in named(world_with(routing), sharing)] == made


@pytest.mark.parametrize(
    ("routing", "served", "reason", "words"),
    [
        (ROUTE, frozenset(), "HTTPRouteNotServed", ["spec.routing.httpRoute", "Install Gateway API"]),
        (
            {**ROUTE, **POOL},
            {"HTTPRoute"},
            "InferencePoolNotServed",
            ["spec.routing.inferencePool", "remove"],
        ),
    ],
    ids=["no Gateway API", "no Inference Extension"],
)
def test_absent_definition_costs_the_route_alone(
    routing: dict[str, Any], served: frozenset[str], reason: str, words: list[str]
) -> None:
    world = world_with(routing, served_kinds=frozenset(served))
    refusal = find_missing_kind(world)
    assert refusal is not None
    assert (refusal.reason, refusal.lasting) == (reason, True)
    assert all(word in refusal.message for word in words)
    kinds = {kind for kind, _ in named(world, ALONE)}
    assert "PodDisruptionBudget" in kinds
    assert not kinds & ALL_KINDS


def test_nothing_is_missing_when_nothing_is_asked_for() -> None:
    assert find_missing_kind(world_with(served_kinds=frozenset())) is None


OLD = "old"


def placed(kind: str, name: str = "chat-old", revision: str = OLD) -> Placed:
    return Placed(kind=kind, name=name, revision=revision)


EVERYTHING = tuple(
    placed(kind) for kind in ("Service", "InferencePool", "NetworkPolicy", "PodDisruptionBudget")
)
THERE = (*EVERYTHING, placed("HTTPRoute", "chat", ""), placed("Service", "chat", ""))


def stale(world: World, sharing: Sharing = ALONE) -> list[str]:
    wanted = build_surroundings(world, sharing)
    return [f"{one.kind} {one.name}" for one in find_stale(world, wanted)]


def test_route_keeps_what_it_pointed_at_until_the_last_pod_is_gone() -> None:
    ending = make_pod(OLD, terminating=True)
    world = world_with({**ROUTE, **POOL}, surroundings=THERE, pods=(ending,))
    assert stale(world) == ["PodDisruptionBudget chat-old"]
    world = world_with({**ROUTE, **POOL}, surroundings=THERE)
    assert stale(world) == [f"{one.kind} {one.name}" for one in EVERYTHING]


def test_field_that_is_removed_takes_its_children_along_and_the_route_first() -> None:
    world = world_with(surroundings=THERE, pods=(make_pod(OLD),), deployments={OLD: make_deployment(OLD)})
    sharing = Sharing(weights={OLD: 100}, services=())
    assert stale(world, sharing) == ["HTTPRoute chat", "Service chat-old", "InferencePool chat-old"]


def test_service_of_clients_is_never_stale() -> None:
    world = world_with(surroundings=(placed("Service", "chat", ""),))
    assert stale(world, NOTHING) == []


def test_route_stays_when_nothing_serves_for_a_moment() -> None:
    world = world_with(ROUTE, surroundings=(placed("HTTPRoute", "chat", ""),))
    assert stale(world, NOTHING) == []


def test_policies_come_from_the_templates_that_run() -> None:
    revision = make_revision(make_spec(routing={"port": 9000}))
    (policy,) = build_policies(world_with(), {"aaa": revision.template})
    assert policy["metadata"]["name"] == "chat-aaa"
    assert {one["port"] for one in policy["spec"]["ingress"][0]["ports"]} == {8001, 9000}


def test_policy_of_resolvers_goes_with_the_need_of_them() -> None:
    gated = world_with(surroundings=(placed("NetworkPolicy", "chat-resolve", ""),))
    gated = replace(gated, spec=make_spec(model={"uri": "pvc://models/tiny"}))
    (policy,) = build_policies(gated, {})
    assert policy["metadata"]["name"] == "chat-resolve"
    assert find_stale(gated, [policy]) == []
    public = replace(gated, spec=make_spec())
    assert build_policies(public, {}) == []
    assert [one.name for one in find_stale(public, [])] == ["chat-resolve"]


revisions = st.text("0123456789abcdef", min_size=10, max_size=10)


@given(
    st.dictionaries(revisions, st.integers(1, 100), min_size=1, max_size=3), st.sets(revisions, max_size=2)
)
def test_surroundings_are_deterministic_and_share_nothing(
    weights: dict[str, int], services: set[str]
) -> None:
    world, sharing = world_with(ROUTE), Sharing(weights=weights, services=services)
    first, second = build_surroundings(world, sharing), build_surroundings(world, sharing)
    assert first == second
    assert all(
        difference(one, json.loads(json.dumps(other))) is None
        for one, other in zip(first, second, strict=True)
    )
    seen: set[int] = set()
    for manifest in (*first, *second):
        parts = set(containers_of(manifest))
        assert not parts & seen
        seen |= parts


def containers_of(value: object) -> list[int]:
    """The identity of each dict and list inside."""
    if isinstance(value, dict):
        return [id(value), *(one for child in value.values() for one in containers_of(child))]
    if isinstance(value, list):
        return [id(value), *(one for child in value for one in containers_of(child))]
    return []


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True), revisions)
def test_names_are_labels_of_at_most_63_characters(service: str, revision: str) -> None:
    owner = make_world().owner
    world = world_with({**ROUTE, **POOL}, owner=type(owner)(namespace="n", name=service, uid="u"))
    manifests = build_surroundings(world, Sharing(weights={revision: 100}, services=(revision,)))
    for manifest in manifests:
        assert len(manifest["metadata"]["name"]) <= 63
        assert manifest["metadata"]["name"][0].isalpha()
