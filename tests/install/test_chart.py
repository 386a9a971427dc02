"""The Helm chart: it lints, refuses bad values, and installs what the operator needs and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo_operator.api.rbac import build_lease_rules, build_rules
from tests.install.helm import HelmRefused, run_helm, template
from tests.install.paths import (
    CHART,
    CHART_CRDS,
    CHART_LEASE_RULES,
    CHART_RULES,
    CRDS,
    MANIFEST,
    NAMESPACE,
)

pytestmark = pytest.mark.cluster  # Helm is one of the cluster's programs


def render(*arguments: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(template(*arguments)) if document]


def only(documents: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The one of its kind, or of its kind and name."""
    (found,) = [
        document
        for document in documents
        if document["kind"] == kind and name in ("", document["metadata"]["name"])
    ]
    return found


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    return render()


def test_chart_lints_strictly() -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART))


def test_manifest_equals_the_rendered_chart() -> None:
    manifest = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert manifest == render("--set", "namespace.create=true")


def test_chart_carries_exactly_the_projects_definitions() -> None:
    assert {path.name: path.read_bytes() for path in CHART_CRDS.iterdir()} == {
        path.name: path.read_bytes() for path in CRDS.glob("*.yaml")
    }


def test_definition_is_installed_unchanged_but_for_the_keep_annotation(rendered) -> None:
    definition = only(rendered, "CustomResourceDefinition")
    assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    (source,) = CRDS.glob("*.yaml")
    assert definition == yaml.safe_load(source.read_text())


def test_definition_is_left_out_when_another_release_owns_it() -> None:
    kinds = {document["kind"] for document in render("--set", "crd.install=false")}
    assert "CustomResourceDefinition" not in kinds


def test_rules_are_what_the_operator_says_it_uses(rendered) -> None:
    assert yaml.safe_load(CHART_RULES.read_text()) == build_rules()
    assert only(rendered, "ClusterRole")["rules"] == build_rules()
    assert yaml.safe_load(CHART_LEASE_RULES.read_text()) == build_lease_rules()
    assert only(rendered, "Role")["rules"] == build_lease_rules()


def test_rules_reach_no_secret_and_no_wildcard() -> None:
    for rule in build_rules():
        assert "secrets" not in rule["resources"]
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


def test_namespaced_mode_grants_nothing_outside_its_namespace() -> None:
    documents = render("--set", "watchNamespace=team-a")
    kinds = {document["kind"] for document in documents}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
    for kind in ("Role", "RoleBinding"):
        assert only(documents, kind, "octavo-operator")["metadata"]["namespace"] == "team-a"
        assert only(documents, kind, "octavo-operator-lease")["metadata"]["namespace"] == NAMESPACE
    assert environment_of(documents)["OCTAVO_WATCH_NAMESPACE"] == "team-a"


def environment_of(documents: list[dict[str, Any]]) -> dict[str, str]:
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_values_reach_the_operators_environment() -> None:
    environment = environment_of(
        render(
            *("--set-string", "image.engine=registry.example/octavo/engine:1"),
            *("--set-string", "hubEndpoint=https://hub.example"),
            *("--set", "logFormat=text"),
        )
    )
    assert environment["OCTAVO_ENGINE_IMAGE"] == "registry.example/octavo/engine:1"
    assert environment["OCTAVO_HUB_ENDPOINT"] == "https://hub.example"
    assert environment["OCTAVO_LOG_FORMAT"] == "text"


def test_operator_pod_keeps_to_restricted_security(rendered) -> None:
    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_namespaced_objects_lie_in_the_releases_namespace(rendered) -> None:
    for kind in ("Deployment", "ServiceAccount"):
        assert only(rendered, kind)["metadata"]["namespace"] == NAMESPACE


def test_large_numbers_are_written_in_full() -> None:
    text = template(
        *("--set-json", 'resources.limits={"memory": 8589934592}'),
        *("--set-json", 'tolerations=[{"key": "gpu", "operator": "Exists", "tolerationSeconds": 31536000}]'),
    )
    assert "memory: 8589934592\n" in text
    assert "tolerationSeconds: 31536000\n" in text


@pytest.mark.parametrize("where", ["file", "--set", "--set-json"])
def test_a_million_and_more_is_never_written_with_an_exponent(where: str, tmp_path: Path) -> None:
    """YAML's numbers are floats to Helm; `1.048576e+06` is refused by what reads a whole number."""
    values = {"resources": {"limits": {"memory": 1048576}, "requests": {"memory": 2000000}}}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    arguments = {
        "file": ("--values", str(path)),
        "--set": ("--set", "resources.limits.memory=1048576,resources.requests.memory=2000000"),
        "--set-json": ("--set-json", f"resources={json.dumps(values['resources'])}"),
    }[where]
    text = template("--set", "crd.install=false", *arguments)
    assert not re.search(r"[0-9]e\+?[0-9]", text)
    assert "memory: 1048576\n" in text
    assert "memory: 2000000\n" in text


@pytest.mark.parametrize("image", ["12345678", "1234567e10"])
def test_image_that_looks_like_a_number_stays_a_name(image: str) -> None:
    documents = render("--set-string", f"image.operator={image},image.engine={image}")
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    assert environment_of(documents)["OCTAVO_ENGINE_IMAGE"] == image


@pytest.mark.parametrize("name", ["12345678", "1e10", "true"])
def test_namespace_that_looks_like_a_number_stays_a_name(name: str) -> None:
    documents = render("--set-string", f"watchNamespace={name}")
    assert only(documents, "Role", "octavo-operator")["metadata"]["namespace"] == name


def test_release_namespace_that_looks_like_a_number_stays_a_name() -> None:
    documents = render("--namespace", "20261129", "--set", "namespace.create=true")
    assert only(documents, "Namespace")["metadata"]["name"] == "20261129"
    assert only(documents, "Deployment")["metadata"]["namespace"] == "20261129"
    assert only(documents, "ClusterRoleBinding")["subjects"][0]["namespace"] == "20261129"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        pytest.param(("--set", "replicas=3"), "replicas", id="unknown value"),
        pytest.param(("--set", "image.operator=https://x/y"), "operator", id="image with a scheme"),
        pytest.param(("--set", "image.engine="), "engine", id="empty image"),
        pytest.param(("--set", "image.pullPolicy=Sometimes"), "pullPolicy", id="unknown pull policy"),
        pytest.param(("--set", "logFormat=xml"), "logFormat", id="unknown log format"),
        pytest.param(("--set", "watchNamespace=Team_A"), "watchNamespace", id="impossible namespace"),
        pytest.param(("--set", "hubEndpoint=hub.example"), "hubEndpoint", id="endpoint without a scheme"),
        pytest.param(("--set", "resources.limits.memory=lots"), "memory", id="impossible quantity"),
    ],
)
def test_schema_refuses_what_cannot_be_right(arguments, field) -> None:
    with pytest.raises(HelmRefused, match=field):
        template(*arguments)


def test_kubernetes_too_old_for_the_definition_is_refused() -> None:
    with pytest.raises(HelmRefused, match="incompatible with Kubernetes"):
        template("--kube-version", "1.29.0")
