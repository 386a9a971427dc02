"""Budgets, policies, routes and pools at a real API server, with and without the definitions they need."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from octavo_operator.decide.surroundings import Sharing, build_policies, build_surroundings
from octavo_operator.desired.deployment import build_deployment
from octavo_operator.desired.difference import difference
from tests.cluster.stage import REPO, Body, Stage, wait_for
from tests.cluster.stage_fixtures import install_gateway_definitions, remove_gateway_definitions
from tests.octavo_operator.builders import OWNER, make_revision, make_spec, make_world

pytestmark = pytest.mark.cluster

ROUTE = {"httpRoute": {"parentRefs": [{"name": "public", "namespace": "gateways"}], "hostnames": ["a.test"]}}
POOL = {"inferencePool": {"endpointPickerRef": {"name": "epp", "port": 9002}}}
OVERLAY: dict[str, Any] = {
    "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "ours"}},
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": []}}
                ]
            }
        },
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "models"},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    },
}
CHILDREN = ("poddisruptionbudgets", "networkpolicies")


def built_for(stage: Stage) -> list[Body]:
    """Everything that the builders can make, for an owner that is there."""
    uid = stage.service(OWNER.name)["metadata"]["uid"]
    owner = replace(OWNER, namespace=stage.namespace, uid=uid)
    spec = make_spec(routing={**ROUTE, **POOL}, template=OVERLAY)
    world = make_world(spec=spec, owner=owner, served_kinds=frozenset({"HTTPRoute", "InferencePool"}))
    revision = make_revision(spec)
    half = Sharing(weights={revision.hash: 90, "fedcba9876": 10}, services=(revision.hash,))
    direct = replace(world, spec=make_spec(routing=ROUTE))
    template = {revision.hash: revision.template}
    deployment = build_deployment(
        owner, revision.hash, revision.template, replicas=0, progress_deadline_seconds=60
    )
    return [
        *build_policies(world, template),
        deployment,
        *build_surroundings(world, half),
        *build_surroundings(direct, half),
    ]


def test_api_server_takes_what_is_built_and_stores_no_other(
    gateway_definitions: object, quiet_stage: Stage
) -> None:
    """A field that is stored otherwise than we write it would be written again in every pass."""
    quiet_stage.apply(OWNER.name)
    for manifest in built_for(quiet_stage):
        answer = quiet_stage.kubectl(
            *("apply", "--server-side", "--force-conflicts", "--validate=strict", "-o", "json", "-f", "-"),
            stdin=json.dumps(manifest),
        )
        stored = json.loads(answer)
        assert difference(manifest, stored) is None, manifest["kind"]


def names_of(stage: Stage, plural: str) -> set[str]:
    return {body["metadata"]["name"] for body in stage.list(plural)}


def backends(stage: Stage) -> list[tuple[str, str, int]]:
    routes = stage.list("httproutes")
    if not routes:
        return []
    (rule,) = routes[0]["spec"]["rules"]
    return [(one["kind"], one["name"], one["weight"]) for one in rule["backendRefs"]]


def test_serving_revision_has_a_budget_and_a_policy(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    name = f"tiny-{stage.service()['status']['currentRevision']}"
    for plural in CHILDREN:
        wait_for(lambda plural=plural: names_of(stage, plural) == {name}, f"{plural} {name}")
    (budget,) = stage.list("poddisruptionbudgets")
    labels = stage.pods(commit)[0]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_budget_moves_with_the_traffic_and_policies_go_with_the_pods(stage: Stage) -> None:
    first = stage.add_commit("first")
    stage.store.tag(REPO, "v1", first)
    second = stage.add_commit("second")
    stage.serve(first, model={"uri": f"hf://{REPO}", "revision": "v1"})
    old = f"tiny-{stage.service()['status']['currentRevision']}"
    stage.serve(second)
    new = f"tiny-{stage.service()['status']['currentRevision']}"
    assert new != old
    for plural in CHILDREN:
        wait_for(lambda plural=plural: names_of(stage, plural) == {new}, f"only {plural} {new}")


def test_drain_of_a_single_replica_is_let_through(stage: Stage) -> None:
    """The eviction API itself decides, by the budget's own status."""
    commit = stage.add_commit("first")
    stage.serve(commit)
    (pod,) = stage.pods(commit)
    wait_for(
        lambda: [one.get("status", {}).get("disruptionsAllowed") for one in stage.list(CHILDREN[0])] == [1],
        "the disruption controller",
    )
    name = pod["metadata"]["name"]
    answer = stage.client.post(
        stage.path("pods", name) + "/eviction",
        json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}},
    )
    assert answer.status_code == 201, answer.text


def test_route_and_pools_come_and_go_with_their_fields(gateway_definitions: object, stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit, routing=ROUTE)
    name = f"tiny-{stage.service()['status']['currentRevision']}"
    wait_for(lambda: backends(stage) == [("Service", name, 100)], "a route to the revision's Service")
    assert name in names_of(stage, "services")

    stage.apply(routing={**ROUTE, **POOL})
    wait_for(lambda: backends(stage) == [("InferencePool", name, 100)], "a route to the pool")
    assert names_of(stage, "inferencepools") == {name}

    stage.apply()
    wait_for(lambda: not stage.list("httproutes"), "the route to go")
    wait_for(lambda: not stage.list("inferencepools"), "the pool to go")
    wait_for(lambda: names_of(stage, "services") == {"tiny"}, "the revision's Service to go")
    assert stage.condition("Ready")["status"] == "True"


def test_route_that_somebody_edits_is_mended(gateway_definitions: object, stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit, routing=ROUTE)
    wait_for(lambda: stage.list("httproutes"), "the route")
    stage.kubectl("patch", "httproute", "tiny", "--type=merge", "-p", '{"spec":{"hostnames":["b.test"]}}')
    wait_for(lambda: stage.list("httproutes")[0]["spec"]["hostnames"] == ["a.test"], "the host name")


def test_overlay_reaches_the_pods_and_what_is_not_allowed_is_refused(stage: Stage) -> None:
    commit = stage.add_commit("first")
    overlay = {"metadata": {"labels": {"team": "search"}}, "spec": {"nodeSelector": {"pool": "models"}}}
    stage.apply(template=overlay)
    (pod,) = stage.wait_pods(commit)
    assert pod["metadata"]["labels"]["team"] == "search"
    assert pod["spec"]["nodeSelector"] == {"pool": "models"}

    stage.apply(template={"spec": {"hostNetwork": True}})
    stalled = stage.wait_condition("Stalled", "True", reason="InvalidSpec")
    assert "spec.template.spec.hostNetwork" in stalled["message"]
    assert len(stage.pods(commit)) == 1


def test_overlay_that_the_api_server_refuses_stalls_until_it_is_corrected(stage: Stage) -> None:
    """It was in progress for ever: kstatus and GitOps tools went on waiting."""
    commit = stage.add_commit("first")
    stage.serve(commit)
    wrong = {"spec": {"tolerations": [{"key": "gpu", "operator": "Perhaps"}]}}
    stage.apply(template=wrong)
    stalled = stage.wait_condition("Stalled", "True", reason="ChildRefused")
    assert "tolerations[0].operator" in stalled["message"]
    assert "correct spec" in stalled["message"]
    stage.wait_condition("Available", "True")

    stage.apply(template={})
    stage.wait_condition("Ready", "True")


def test_absent_definitions_cost_the_route_alone(stage: Stage) -> None:
    commit = stage.add_commit("first")
    stage.serve(commit)
    stage.apply(routing={**ROUTE, **POOL})
    found = stage.wait_condition("Stalled", "True", reason="HTTPRouteNotServed")
    assert "Install Gateway API" in found["message"]
    assert stage.condition("Available")["status"] == "True"
    stage.apply()
    stage.wait_condition("Ready", "True")


def test_definitions_are_found_when_installed_and_missed_when_removed(stage: Stage) -> None:
    """While the operator runs; other services notice nothing."""
    commit = stage.add_commit("first")
    stage.apply(routing=ROUTE)
    stage.make_ready(stage.wait_pods(commit))
    stage.wait_condition("Stalled", "True", reason="HTTPRouteNotServed")
    install_gateway_definitions(stage.cluster)
    try:
        stage.wait_condition("Ready", "True")
        wait_for(lambda: stage.list("httproutes"), "the route")
    finally:
        remove_gateway_definitions(stage.cluster)
    stage.wait_condition("Stalled", "True", reason="HTTPRouteNotServed")
    stage.apply("other", model={"uri": f"hf://{REPO}", "revision": commit})
    stage.make_ready(stage.wait_pods(commit, 2))
    stage.wait_condition("Ready", "True", name="other")
    stage.require_operator()


def test_canary_behind_a_route_gets_exactly_its_share_and_then_all(
    gateway_definitions: object, stage: Stage
) -> None:
    """One of two replicas is half of the pods; the route gives it the tenth that it was promised."""
    first = stage.add_commit("first")
    stage.store.tag(REPO, "v1", first)
    second = stage.add_commit("second")
    rollout = {
        "strategy": "Canary",
        "canarySteps": [{"weightPercent": 10, "durationSeconds": 5}],
        "gate": {"load": False},
    }
    stage.serve(first, routing=ROUTE, rollout=rollout, model={"uri": f"hf://{REPO}", "revision": "v1"})
    old = f"tiny-{stage.service()['status']['currentRevision']}"
    wait_for(lambda: backends(stage) == [("Service", old, 100)], "the route")

    stage.apply(routing=ROUTE, rollout=rollout)
    (candidate,) = stage.wait_pods(second)
    assert backends(stage) == [("Service", old, 100)]
    new = f"tiny-{candidate['metadata']['labels']['octavo.dev/revision']}"
    wait_for(lambda: new in names_of(stage, "services"), "the candidate's own Service")
    stage.make_ready([candidate])
    shares = {("Service", old, 90), ("Service", new, 10)}
    wait_for(lambda: set(backends(stage)) == shares, "the tenth")
    wait_for(lambda: names_of(stage, "poddisruptionbudgets") == {old, new}, "a budget for each")

    wait_for(lambda: backends(stage) == [("Service", new, 100)], "all of it")
    stage.wait_condition("Ready", "True")
    wait_for(lambda: names_of(stage, "services") == {"tiny", new}, "the old one's Service to go")
    wait_for(lambda: names_of(stage, "networkpolicies") == {new}, "the old one's policy to go")
