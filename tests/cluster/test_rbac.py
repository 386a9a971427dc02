"""The role is exactly what the operator uses: by the API server's own record of what it was asked.

One scenario makes the operator do all that it ever does. What it used and what its role grants must then be
the same set, and nothing was refused. Whoever adds a rule adds the scene that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octavo_operator.api.rbac import build_lease_rules, build_rules
from tests.cluster.busy_engine import BusyEngine
from tests.cluster.local.cluster import Cluster
from tests.cluster.stage import REPO, Stage, wait_for
from tests.cluster.stage_fixtures import install_gateway_definitions, remove_gateway_definitions

pytestmark = pytest.mark.cluster

Access = tuple[str, str, str]
RULES = [*build_rules(), *build_lease_rules()]
"""Those for the Lease lie in a Role of their own, in the operator's namespace."""
ROUTING: dict[str, Any] = {
    "httpRoute": {"parentRefs": [{"name": "gateway"}]},
    "inferencePool": {"endpointPickerRef": {"name": "picker"}},
}


@pytest.fixture(scope="module")
def routed_cluster(defined_cluster: Cluster) -> Iterator[Cluster]:
    """With Gateway API and its Inference Extension, which the other modules' cluster has not."""
    install_gateway_definitions(defined_cluster)
    yield defined_cluster
    remove_gateway_definitions(defined_cluster)


def granted(rules: list[dict[str, Any]]) -> set[Access]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def play_all(stage: Stage) -> None:
    """Everything that the operator does, once."""
    stage.start_operator()
    first, second = stage.add_commit("one"), stage.add_commit("two")
    serve(stage, first, routing={"httpRoute": ROUTING["httpRoute"]})
    serve(stage, second, routing=ROUTING)
    wait_for(lambda: not stage.pods(first), "the old pods to go")
    serve(stage, second)
    wait_for(lambda: len(stage.list("controllerrevisions")) == 1, "the old record to go")
    wait_for(lambda: len(stage.list("networkpolicies")) == 1, "the old policy to go")
    wait_for(lambda: not stage.list("httproutes"), "the route to go")
    wait_for(lambda: not stage.list("inferencepools"), "the pools to go")
    ask_a_resolver_pod(stage)
    give_up_a_replica(stage)
    assert stage.stop_operator() == 0


def serve(stage: Stage, commit: str, **sections: Any) -> None:
    rollout = {"revisionHistoryLimit": 0, "gate": {"load": False}}
    model = {"uri": f"hf://{REPO}", "revision": commit}
    stage.serve(commit, model=model, rollout=rollout, **sections)


def ask_a_resolver_pod(stage: Stage) -> None:
    """It is made for a folder, and deleted when it has said that there is none."""
    stage.apply("folder", model={"uri": "pvc://claim/model"})
    message = json.dumps({"reason": "FileMissing", "message": "config.json is missing"})
    stage.end_resolver(stage.wait_resolver(), "Failed", message)
    stage.wait_condition("ModelResolved", "False", reason="FileMissing", name="folder")
    wait_for(lambda: not stage.list("pods", "octavo.dev/question"), "the resolver to go")


def give_up_a_replica(stage: Stage) -> None:
    """Of two idle ones, after a minute of looking; it is marked before the number falls."""
    autoscaling = {"maxReplicas": 2, "scaleDown": {"stabilizationWindowSeconds": 0}}
    commit = stage.add_commit("idle")
    stage.engines.script(commit).metrics = BusyEngine().page
    model = {"uri": f"hf://{REPO}", "revision": commit}
    stage.apply("idle", model=model, autoscaling={**autoscaling, "minReplicas": 2})
    stage.make_ready(stage.wait_pods(commit, 2))
    stage.wait_condition("ScalingActive", "True", name="idle")
    stage.apply("idle", model=model, autoscaling=autoscaling)
    wait_for(lambda: len(stage.pods(commit)) == 1, "one replica", seconds=150)


def resources_of(index: int) -> str:
    return ",".join(RULES[index]["resources"])


@pytest.mark.timeout(400)
def test_role_grants_exactly_what_the_operator_uses(routed_cluster: Cluster, quiet_stage: Stage) -> None:
    play_all(quiet_stage)
    asked = quiet_stage.asked()
    assert [one for one in asked if one.denied] == []
    used = {access for one in asked for access in one.accesses}
    assert sorted(used - granted(RULES)) == [], "used, and granted by nothing of ours"
    assert sorted(granted(RULES) - used) == [], "granted, and never used"


@pytest.mark.timeout(300)
def test_nothing_is_forbidden_when_the_operator_watches_all_namespaces(
    routed_cluster: Cluster, make_stage: Callable[..., Stage]
) -> None:
    stage = make_stage(everywhere=True)
    play_all(stage)
    assert [one for one in stage.asked() if one.denied] == []


@pytest.mark.parametrize("index", range(len(RULES)), ids=resources_of)
def test_operator_is_refused_something_when_a_rule_is_taken_away(
    routed_cluster: Cluster, make_stage: Callable[..., Stage], index: int
) -> None:
    left = [one for number, one in enumerate(RULES) if number != index]
    lease = [one for one in left if one["resources"] == ["leases"]]
    taken = granted([RULES[index]])
    stage = make_stage(rules=[one for one in left if one not in lease], lease_rules=lease)
    commit = stage.add_commit("one")
    stage.start_operator()
    stage.apply(model={"uri": f"hf://{REPO}", "revision": commit}, routing=ROUTING)
    stage.apply("folder", model={"uri": "pvc://claim/model"})

    def refused() -> bool:
        stage.make_ready(stage.pods(commit))
        denied = {one.accesses for one in stage.asked() if one.denied}
        return any(accesses & taken for accesses in denied)

    wait_for(refused, f"a request that {sorted(taken)[0]} would have allowed")
