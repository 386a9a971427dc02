"""Everything the end-to-end tests run against: the full cluster, the real images, a hub, the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.local import Cluster
from tests.demo.chat import RequestFailed, read_metrics
from tests.demo.inside import InsideConnection
from tests.demo.installation import CRD, OPERATOR, Images, install
from tests.demo.kubectl import Kubectl
from tests.demo.service import ServiceRef
from tests.e2e.waiting import wait_until
from tests.install.paths import NAMESPACE
from tests.support.model_hub import HubStore

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
METRICS_PORT = 8081
FIGURES = "octavo_scaling_"
READY_SECONDS = 300
REFUSED_SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running installation of Octavo and the means to use it."""

    cluster: Cluster
    kubectl: Kubectl
    images: Images
    store: HubStore
    hub_endpoint: str

    def apply(self, namespace: str, name: str, spec: Mapping[str, object]) -> ServiceRef:
        """Create or change an InferenceService as `kubectl apply` does."""
        manifest = {
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        self.kubectl.run("apply", "--filename", "-", stdin=json.dumps(manifest))
        return ServiceRef(kubectl=self.kubectl, name=name, namespace=namespace)

    def remove_namespace(self, name: str) -> None:
        """Without its pods already, or it is looked at again only after half of their grace period."""
        self.kubectl.run("delete", CRD, "--all", "--namespace", name)
        wait_until(
            lambda: self.kubectl.items("pods", "--namespace", name),
            lambda pods: not pods,
            seconds=180,
            what=f"the pods of {name} gone",
        )
        self.kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def publish(self, repository: str, readme: str, *, branch: str = "main") -> str:
        """Commit the sample model with another readme: same weights, another commit."""
        first = self.store.resolve(SMOLLM2, "v1")
        files: dict[str, Path | bytes] = {file.path: self.store.content(file) for file in first.files}
        return self.store.add_commit(
            repository, files | {"README.md": readme.encode()}, branch=branch, message=readme
        )

    def operator_pod(self) -> dict[str, Any]:
        (pod,) = self.kubectl.items(
            "pods", "--namespace", NAMESPACE, "--selector", "app.kubernetes.io/name=octavo-operator"
        )
        return pod

    def install(self, images: Images) -> None:
        """Upgrade the release to these images, as a user does, and wait until the operator is available."""
        install(self.kubectl, images, hub_endpoint=self.hub_endpoint)

    def kill_operator(self) -> None:
        """At once, as when its node dies; no other one starts before `install`."""
        pod = self.operator_pod()["metadata"]["name"]
        self.kubectl.run("delete", "pod", pod, "--namespace", NAMESPACE, "--grace-period=0", "--force")
        self.kubectl.run("scale", OPERATOR, "--namespace", NAMESPACE, "--replicas=0")

    def in_operator(self, script: str) -> str:
        """What a line of Python prints in the operator's container."""
        pod = self.operator_pod()["metadata"]
        inside = ("exec", "--namespace", pod["namespace"], pod["name"], "--", "python", "-c", script)
        return self.kubectl.run(*inside).strip()

    def operator_address(self) -> str:
        """Of its pod; empty while it has none."""
        return str(self.operator_pod()["status"].get("podIP", ""))

    def scaling_figures(self) -> dict[str, float]:
        """What the operator says of the only service that it scales; empty while it does not answer."""
        try:
            seen = read_metrics(
                lambda: InsideConnection(self.cluster.netns, self.operator_address(), METRICS_PORT, 10)
            )
        except (RequestFailed, ValueError):
            return {}
        return {name.removeprefix(FIGURES): seen[name] for name in seen if name.startswith(FIGURES)}

    def scale_operator(self, replicas: int) -> None:
        self.kubectl.run("scale", OPERATOR, "--namespace", NAMESPACE, f"--replicas={replicas}")
        self.kubectl.run("rollout", "status", OPERATOR, "--namespace", NAMESPACE, "--timeout=180s")
        selector = ("--selector", "app.kubernetes.io/name=octavo-operator")
        wait_until(
            lambda: self.kubectl.items("pods", "--namespace", NAMESPACE, *selector),
            lambda pods: len(pods) == replicas,
            seconds=60,
            what=f"{replicas} operator pods",
        )


def small_spec(uri: str = f"hf://{SMOLLM2}", **model: str) -> dict[str, Any]:
    """A service small enough that two of them fit on two cores."""
    return {
        "model": {"uri": uri, **model},
        "engine": {"maxModelLen": 512},
        "resources": {"cpu": "500m"},
        # A namespace's deletion waits in steps of half its pods' grace period, which follows from this.
        "rollout": {"drainSeconds": 20},
    }


def wait_ready(service: ServiceRef, seconds: float = READY_SECONDS) -> dict[str, Any]:
    """The status once Ready is True for the newest generation."""

    def is_ready(resource: Mapping[str, Any]) -> bool:
        status = resource.get("status", {})
        if status.get("observedGeneration") != resource["metadata"]["generation"]:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))

    ready = wait_until(service.read, is_ready, seconds=seconds, what=f"{service.name} Ready")
    status: dict[str, Any] = ready["status"]
    return status


def wait_refused(service: ServiceRef, reason: str, seconds: float = REFUSED_SECONDS) -> str:
    """The message of Ready=False once it carries `reason`."""
    seen = wait_until(
        lambda: service.condition("Ready"),
        lambda ready: ready.get("status") == "False" and ready.get("reason") == reason,
        seconds=seconds,
        what=f"{service.name} refused with {reason}",
    )
    return str(seen["message"])


def only_ready_pod(service: ServiceRef) -> dict[str, Any]:
    ready = [pod for pod in service.pods() if is_pod_ready(pod)]
    assert len(ready) == 1, [pod["metadata"]["name"] for pod in ready]
    return ready[0]


def is_pod_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
