"""What the builders make: golden files, security, the order in which a pod ends."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from octavo_operator.decide.surroundings import Sharing, build_policies, build_surroundings
from octavo_operator.desired.controller_revision import build_controller_revision
from octavo_operator.desired.deployment import build_deployment
from octavo_operator.desired.difference import difference
from octavo_operator.desired.learned import Learned
from octavo_operator.desired.pins import build_pins
from octavo_operator.desired.pod_template import (
    DRAIN_ACCEPT_SECONDS,
    PRE_STOP_SECONDS,
    STARTUP_BASE_SECONDS,
    build_startup_probe,
    grace_seconds,
)
from octavo_operator.desired.revision import Revision, parse_revision_data, revision_data
from octavo_operator.desired.service import build_service
from tests.octavo_operator.builders import OWNER, make_pin, make_revision, make_spec, make_world

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FULL_SPEC = make_spec(
    model={"uri": "hf://organization/model", "revision": "v2", "refreshToken": "again", "servedName": "gpt"},
    engine={
        "image": "example.test/engine:2",
        "maxModelLen": 2048,
        "maxSequences": 8,
        "kvCache": {"dtype": "Float32", "blockTokens": 32, "forSequences": 2},
        "args": ["--dtype=float32"],
        "env": [{"name": "LOG_LEVEL", "value": "debug"}, {"name": "EMPTY"}],
    },
    resources={"cpu": "1.5", "memory": "2Gi"},
    rollout={"drainSeconds": 30, "progressDeadlineSeconds": 600},
    routing={
        "port": 9000,
        "httpRoute": {"parentRefs": [{"name": "public"}], "hostnames": ["chat.example.com"]},
        "inferencePool": {"endpointPickerRef": {"name": "epp"}},
    },
)


def deployment_of(revision: Revision, *, replicas: int = 1, deadline: int = 60) -> dict[str, Any]:
    return build_deployment(
        OWNER, revision.hash, revision.template, replicas=replicas, progress_deadline_seconds=deadline
    )


def manifests(spec: Any) -> list[dict[str, Any]]:
    revision = make_revision(spec)
    world = make_world(spec=spec, served_kinds=frozenset({"HTTPRoute", "InferencePool"}))
    sharing = Sharing(weights={revision.hash: 100}, services=(revision.hash,))
    return [
        build_pins(OWNER, (make_pin(spec),), {}),
        build_controller_revision(OWNER, revision_data(revision), number=1, learned=Learned()),
        *build_policies(world, {revision.hash: revision.template}),
        deployment_of(revision, replicas=2, deadline=spec.rollout.progress_deadline_seconds),
        build_service(OWNER, port=spec.routing.port, serving=revision.hash),
        *build_surroundings(world, sharing),
    ]


@pytest.mark.parametrize(("name", "spec"), [("defaults", make_spec()), ("everything", FULL_SPEC)])
def test_manifests_are_golden(name: str, spec: Any) -> None:
    """A difference here restarts engines on an upgrade only where no template is stored; look at it twice.

    To renew: `OCTAVO_RENEW_GOLDEN=1 pytest tests/octavo_operator/desired`.
    """
    path = GOLDEN / f"{name}.yaml"
    made = json.loads(json.dumps(manifests(spec)))
    if os.environ.get("OCTAVO_RENEW_GOLDEN"):
        path.write_text(yaml.safe_dump_all(made, sort_keys=False, width=110))
    assert list(yaml.safe_load_all(path.read_text())) == made


def pod_of(spec: Any) -> dict[str, Any]:
    pod: dict[str, Any] = make_revision(spec).template["spec"]
    return pod


@pytest.mark.parametrize("spec", [make_spec(), FULL_SPEC], ids=["defaults", "everything"])
def test_pod_meets_the_restricted_standard(spec: Any) -> None:
    pod = pod_of(spec)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]["cpu"] == container["resources"]["limits"]["cpu"]
    assert {volume["name"]: volume["emptyDir"] for volume in pod["volumes"]} == {"models": {}, "tmp": {}}


@given(st.integers(0, 3600))
def test_grace_period_holds_the_whole_end_of_a_pod(drain: int) -> None:
    pod = pod_of(make_spec(rollout={"drainSeconds": drain}))
    args = pod["containers"][0]["args"]
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    accept = int(args[args.index("--drain-accept-seconds") + 1])
    assert int(args[args.index("--shutdown-timeout") + 1]) == drain
    assert (sleep, accept) == (PRE_STOP_SECONDS, DRAIN_ACCEPT_SECONDS)
    assert pod["terminationGracePeriodSeconds"] == grace_seconds(drain) >= sleep + accept + drain + 5


@given(st.integers(1, 2**41))
def test_startup_budget_grows_with_the_weights(weights: int) -> None:
    probe = build_startup_probe(weights)
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    assert budget >= STARTUP_BASE_SECONDS + weights / 25_000_000
    assert probe["httpGet"]["path"] == "/ready"


def test_engine_is_told_the_plan_and_the_users_flags_come_last() -> None:
    args = pod_of(FULL_SPEC)["containers"][0]["args"]
    assert args[0] == "serve"
    assert args[args.index("--planned-kv-blocks") + 1] == "244"
    assert args[args.index("--kv-cache-dtype") + 1] == "float32"
    assert args[args.index("--served-model-name") + 1] == "gpt"
    assert args[-1] == "--dtype=float32"


def test_prefix_cache_is_turned_off_when_the_spec_says_so() -> None:
    off = pod_of(make_spec(engine={"prefixCaching": False}))["containers"][0]["args"]
    assert off[-1] == "--no-enable-prefix-caching"
    assert "--no-enable-prefix-caching" not in pod_of(make_spec())["containers"][0]["args"]


def test_engine_reaches_no_hub_and_fetch_reaches_the_configured_one() -> None:
    pod = pod_of(make_spec())
    engine = {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}
    fetch = {one["name"]: one.get("value", "") for one in pod["initContainers"][0]["env"]}
    assert engine["HF_HUB_OFFLINE"] == "1"
    assert "HF_ENDPOINT" not in engine
    assert fetch["HF_ENDPOINT"] == "http://hub.test"


def test_no_two_manifests_share_a_dict() -> None:
    revision = make_revision()
    first = deployment_of(revision)
    second = deployment_of(revision)
    first["spec"]["template"]["spec"]["containers"].clear()
    first["metadata"]["labels"].clear()
    assert second["spec"]["template"]["spec"]["containers"]
    assert second["metadata"]["labels"]
    assert revision.template["spec"]["containers"]


def test_children_belong_to_their_owner_and_do_not_block_its_deletion() -> None:
    for manifest in manifests(make_spec()):
        (reference,) = manifest["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == (OWNER.uid, True)
        assert reference["blockOwnerDeletion"] is False
        assert manifest["metadata"]["namespace"] == OWNER.namespace
        assert manifest["metadata"]["labels"]["octavo.dev/service"] == OWNER.name


@pytest.mark.parametrize("spec", [make_spec(), FULL_SPEC], ids=["defaults", "everything"])
def test_revision_survives_storage(spec: Any) -> None:
    revision = make_revision(spec)
    assert parse_revision_data(json.loads(json.dumps(revision_data(revision)))) == revision


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(json_values)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert difference(value, copy.deepcopy(value)) is None


@given(st.dictionaries(st.text(), json_values, min_size=1), st.dictionaries(st.text(), json_values))
def test_fields_of_others_are_no_difference(ours: dict[str, Any], others: dict[str, Any]) -> None:
    assert difference(ours, {**others, **ours}) is None


@pytest.mark.parametrize(
    ("desired", "observed", "path"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b"),
        ({"a": {"b": 1}}, {"a": None}, "a"),
        ({"a": [1, 2]}, {"a": [1]}, "a"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a[0].b"),
        ({"a": 1}, {}, "a"),
        ({"a": 1}, None, "."),
    ],
)
def test_difference_names_the_first_field(desired: Any, observed: Any, path: str) -> None:
    assert difference(desired, observed) == path


def test_empty_list_is_stored_as_none() -> None:
    assert difference({"a": {"b": []}}, {"a": {}}) is None
    assert difference({"a": {"b": []}}, {"a": {"b": [1]}}) == "a.b"


def test_keys_of_clients_come_out_of_a_secret_and_stand_in_no_object() -> None:
    """A key could only be written into spec, where everybody reads it who may read the service."""
    revision = make_revision(make_spec(engine={"apiKeySecretRef": {"name": "chat-keys"}}))
    fetch, engine = (*revision.template["spec"]["initContainers"], *revision.template["spec"]["containers"])
    (keys,) = [one for one in engine["env"] if one["name"] == "OCTAVO_API_KEY"]
    assert keys["valueFrom"] == {"secretKeyRef": {"name": "chat-keys", "key": "apiKeys"}}
    assert not any(one["name"] == "OCTAVO_API_KEY" for one in fetch["env"])
    assert revision.hash != make_revision().hash, "another Secret is another revision"
