"""Remove what the demo made, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.demo.installation import CRD, is_installed, uninstall
from tests.demo.kubectl import Kubectl
from tests.demo.service import parse_reference
from tests.demo.steps import Steps
from tests.demo.targets import CLUSTER_NAME, find_kubectl, run_module
from tests.install.paths import NAMESPACE, ROOT, SAMPLE


def remember_existing(kubectl: Kubectl) -> None:
    """Note, before anything is installed, what the user's cluster already had."""
    if ledger().exists():
        return
    had = {
        "crd": kubectl.attempt("get", "crd", CRD).returncode == 0,
        "release": is_installed(kubectl),
        "namespace": kubectl.attempt("get", "namespace", NAMESPACE).returncode == 0,
    }
    ledger().parent.mkdir(parents=True, exist_ok=True)
    ledger().write_text(json.dumps(had))


def ledger() -> Path:
    return Path(os.environ.get("OCTAVO_STATE", ROOT / ".octavo")) / "demo-existing.json"


def remove_from_existing(steps: Steps) -> None:
    """Delete the sample, and of release, namespace and definition those that the demo brought."""
    kubectl = Kubectl(program=find_kubectl(), kubeconfig=None)
    if not ledger().exists():
        steps.say("Nothing to remove: the demo has not run on an existing cluster from this checkout.")
        return
    had = json.loads(ledger().read_text())
    service = parse_reference(kubectl, SAMPLE)
    with steps.step("Delete the sample, and Octavo where the demo installed it"):
        if kubectl.attempt("get", "crd", CRD).returncode == 0:
            kubectl.run("delete", *service.scope, "--ignore-not-found", "--wait", "--filename", str(SAMPLE))
        if not had["release"]:
            uninstall(kubectl)
        if not had["crd"]:
            kubectl.run("delete", "crd", CRD, "--ignore-not-found")
        if not had["namespace"]:
            kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found")
    ledger().unlink()


def remove_local(steps: Steps) -> None:
    """Remove the cluster with its hub, images and all; the cache and the logs stay."""
    with steps.step("Stop the cluster and remove what it left"):
        run_module("tests.cluster.local", "down", "--name", CLUSTER_NAME)
