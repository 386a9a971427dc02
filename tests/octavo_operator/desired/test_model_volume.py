"""Volumes of every source, and the resolver pod: restricted, without a token, read-only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo import engine_contract as contract
from octavo_operator.api.names import MAX_NAME_LENGTH
from octavo_operator.api.rbac import build_rules
from octavo_operator.api.spec import ModelSource
from octavo_operator.desired.metadata import Owner
from octavo_operator.desired.resolver_pod import Question, build_resolver_pod, needs_resolver
from tests.octavo_operator.builders import COMMIT, OWNER, URI, make_revision, make_spec

DIGEST = f"sha256:{'ab' * 32}"
HUB = {"uri": URI}
GATED = {"uri": URI, "credentialsSecretRef": {"name": "hf-token"}}
CACHED = {"uri": URI, "cache": {"persistentVolumeClaim": "models"}}
CLAIM = {"uri": "pvc://models/qwen/8b", "revision": DIGEST}
IMAGE = {"uri": "oci://ghcr.io/models/qwen:8b", "revision": DIGEST}
SOURCES = [
    pytest.param(HUB, id="hub"),
    pytest.param(GATED, id="gated"),
    pytest.param(CACHED, id="cached"),
    pytest.param(CLAIM, id="claim"),
    pytest.param(IMAGE, id="image"),
]


def model_of(words: dict[str, Any]) -> ModelSource:
    return make_spec(model=words).model


def question(words: dict[str, Any], **changes: Any) -> Question:
    values: dict[str, Any] = {
        "model": model_of(words),
        "revision": "main",
        "image": "example.test/engine:1",
        "hub_endpoint": "http://hub.test",
    }
    return Question(**{**values, **changes})


def engine_pod(words: dict[str, Any], commit: str = COMMIT) -> dict[str, Any]:
    pod: dict[str, Any] = make_revision(make_spec(model=words), commit).template["spec"]
    return pod


def resolver_pod(words: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = build_resolver_pod(OWNER, question(words))["spec"]
    return pod


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["name"]: mount for mount in container["volumeMounts"]}


def value_of(container: dict[str, Any], flag: str) -> str:
    args = container["args"]
    return str(args[args.index(flag) + 1])


@pytest.mark.parametrize("words", SOURCES)
def test_every_pod_mounts_what_its_volumes_are_and_nothing_else(words: dict[str, Any]) -> None:
    for pod in (engine_pod(words), resolver_pod(words)):
        names = {volume["name"] for volume in pod["volumes"]}
        used = {name for one in (*pod.get("initContainers", ()), *pod["containers"]) for name in mounts(one)}
        assert used == names


@pytest.mark.parametrize("words", SOURCES)
def test_resolver_meets_the_restricted_standard_and_has_no_token_of_the_cluster(
    words: dict[str, Any],
) -> None:
    pod = resolver_pod(words)
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"
    assert pod["activeDeadlineSeconds"] > 0
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    writable = [name for name, mount in mounts(container).items() if not mount.get("readOnly")]
    assert writable == ["tmp"]
    assert container["args"][-2:] == ["--report", "/dev/termination-log"]
    assert container["terminationMessagePath"] == "/dev/termination-log"


def test_token_is_mounted_by_reference_where_it_is_needed_and_nowhere_else() -> None:
    pod = engine_pod(GATED)
    (fetch,), (engine,) = pod["initContainers"], pod["containers"]
    volume = next(one for one in pod["volumes"] if one["name"] == "credentials")
    assert volume["secret"] == {
        "secretName": "hf-token",
        "items": [{"key": "token", "path": "token"}],
        "defaultMode": 0o440,
        "optional": True,
    }
    assert mounts(fetch)["credentials"] == {
        "name": "credentials",
        "mountPath": "/var/run/octavo",
        "readOnly": True,
    }
    assert value_of(fetch, "--token-file") == contract.TOKEN_FILE
    assert "credentials" not in mounts(engine), "what serves the internet holds no token"
    assert "hf-token" not in str([fetch["env"], engine["env"], engine["args"]])
    assert not any("secrets" in rule["resources"] for rule in build_rules())


def test_claim_that_holds_the_model_is_mounted_read_only_and_linked() -> None:
    pod = engine_pod(CLAIM, DIGEST)
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert volumes["source"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert volumes["models"] == {"name": "models", "emptyDir": {}}
    (fetch,), (engine,) = pod["initContainers"], pod["containers"]
    for container in (fetch, engine):
        assert mounts(container)["source"] == {"name": "source", "mountPath": "/source", "readOnly": True}
    assert value_of(fetch, "--source") == "/source"
    folder = f"/models/{DIGEST.replace(':', '-')}"
    assert value_of(fetch, "--to") == value_of(engine, "--model") == folder


def test_image_that_holds_the_model_is_a_volume() -> None:
    volumes = {one["name"]: one for one in engine_pod(IMAGE, DIGEST)["volumes"]}
    assert volumes["source"]["image"] == {"reference": "ghcr.io/models/qwen:8b", "pullPolicy": "IfNotPresent"}


def test_claim_that_caches_is_written_and_keyed_by_commit() -> None:
    """Two revisions of one model on one volume never share a folder."""
    first, second = engine_pod(CACHED), engine_pod(CACHED, "f" * 40)
    for pod in (first, second):
        (volume,) = [one for one in pod["volumes"] if one["name"] == "models"]
        assert volume["persistentVolumeClaim"] == {"claimName": "models"}
        assert not mounts(pod["initContainers"][0])["models"].get("readOnly")
    folders = {value_of(pod["initContainers"][0], "--to") for pod in (first, second)}
    assert folders == {f"/models/{COMMIT}", f"/models/{'f' * 40}"}


@pytest.mark.parametrize(
    ("words", "needed"), [(HUB, False), (CACHED, False), (GATED, True), (CLAIM, True), (IMAGE, True)]
)
def test_resolver_is_needed_where_the_operator_may_not_look(words: dict[str, Any], needed: bool) -> None:
    assert needs_resolver(model_of(words)) is needed


def test_question_is_the_same_after_a_restart_and_another_for_other_words() -> None:
    same = {question(GATED).id for _ in range(2)}
    others = {
        question(GATED, revision="v2").id,
        question(GATED, image="example.test/engine:2").id,
        question({**GATED, "refreshToken": "again"}).id,
        question({**GATED, "credentialsSecretRef": {"name": "other"}}).id,
        question({**GATED, "servedName": "gpt"}).id,
    }
    assert len(same) == 1
    assert len(others) == 5
    assert same <= others, "the served name does not change what is looked up"


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
def test_name_of_a_resolver_is_a_label_for_every_service(name: str) -> None:
    assert len(name) <= MAX_NAME_LENGTH
    pod = build_resolver_pod(Owner(namespace="prod", name=name, uid="u"), question(GATED))
    assert len(pod["metadata"]["name"]) <= 63
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u"
