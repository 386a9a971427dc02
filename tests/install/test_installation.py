"""The installation on a real API server: accepted, repeatable, upgradable, and no wider than it says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.installation import CRD, ensure_namespace, uninstall
from tests.demo.kubectl import Kubectl
from tests.install.helm import run_helm
from tests.install.paths import CHART, MANIFEST, NAMESPACE, RELEASE

pytestmark = pytest.mark.cluster

OPERATOR = f"system:serviceaccount:{NAMESPACE}:octavo-operator"
SERVICE = """
apiVersion: octavo.dev/v1alpha1
kind: InferenceService
metadata: {name: kept, namespace: default}
spec: {model: {uri: hf://octavo-tests/model}}
"""


@pytest.fixture(scope="module")
def kubectl(light_cluster) -> Kubectl:
    return Kubectl(program=light_cluster.bin_dir / "kubectl", kubeconfig=light_cluster.kubeconfig)


@pytest.fixture
def release(kubectl) -> Iterator[None]:
    """Helm's release of the chart; the light cluster has no node, so nothing waits for pods."""
    ensure_namespace(kubectl, NAMESPACE)
    upgrade(kubectl, CHART)
    yield
    uninstall(kubectl)
    kubectl.run("delete", "crd", CRD, "--ignore-not-found")


def upgrade(kubectl: Kubectl, chart: Path, *arguments: str) -> None:
    command = ("upgrade", "--install", RELEASE, str(chart), "--namespace", NAMESPACE, *arguments)
    run_helm(*command, environment=kubectl.environment)


def may(kubectl: Kubectl, *question: str) -> bool:
    return kubectl.attempt("auth", "can-i", *question, "--as", OPERATOR).stdout.strip() == "yes"


def test_manifest_is_accepted_and_applying_it_again_changes_nothing(kubectl) -> None:
    try:
        kubectl.run("apply", "--filename", str(MANIFEST))
        again = kubectl.run("apply", "--filename", str(MANIFEST)).splitlines()
        assert [line for line in again if not line.endswith(" unchanged")] == []
    finally:
        kubectl.run("delete", "--ignore-not-found", "--filename", str(MANIFEST))


def test_upgrade_of_the_release_upgrades_the_definition(kubectl, release, tmp_path) -> None:
    newer = shutil.copytree(CHART, tmp_path / "octavo")
    (definition,) = (newer / "files" / "crds").iterdir()
    before = definition.read_text()
    definition.write_text(before.replace("    shortNames:\n", "    shortNames:\n    - newer\n", 1))
    upgrade(kubectl, newer)
    assert "newer" in kubectl.read("crd", CRD)["spec"]["names"]["shortNames"]


def test_uninstalling_keeps_the_definition_and_every_resource(kubectl, release) -> None:
    kubectl.run("apply", "--filename", "-", stdin=SERVICE)
    uninstall(kubectl)
    assert kubectl.read(CRD, "kept", "--namespace", "default")["spec"]["model"]["revision"] == "main"
    upgrade(kubectl, CHART)
    assert kubectl.read(CRD, "kept", "--namespace", "default")


def test_operator_may_do_its_work_everywhere_and_read_no_secret(kubectl, release) -> None:
    assert may(kubectl, "list", CRD, "--all-namespaces")
    assert may(kubectl, "patch", CRD, "--subresource=status", "--namespace", "default")
    assert may(kubectl, "create", "deployments.apps", "--namespace", "default")
    assert not may(kubectl, "get", "secrets", "--namespace", NAMESPACE)
    assert not may(kubectl, "patch", CRD, "--namespace", "default")
    assert may(kubectl, "create", "pods", "--namespace", "default"), "resolvers are bare pods"
    assert may(kubectl, "patch", "pods", "--namespace", "default"), "those that may go first are marked"
    assert not may(kubectl, "update", "pods", "--namespace", "default")
    assert not may(kubectl, "get", "pods", "--subresource=log", "--namespace", "default")


def test_operator_of_one_namespace_may_do_nothing_in_another(kubectl, release) -> None:
    ensure_namespace(kubectl, "team-a")
    upgrade(kubectl, CHART, "--set", "watchNamespace=team-a")
    assert may(kubectl, "list", CRD, "--namespace", "team-a")
    assert may(kubectl, "create", "deployments.apps", "--namespace", "team-a")
    assert not may(kubectl, "list", CRD, "--namespace", "default")
    assert not may(kubectl, "list", CRD, "--all-namespaces")
