"""One InferenceService as the demo sees it: applied, awaited with its reasons shown, and reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.demo.installation import CRD
from tests.demo.kubectl import Kubectl, KubectlRefused

READY_TIMEOUT = "15m"
POLL_SECONDS = 1.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRef:
    """An InferenceService in a namespace; the empty namespace is the kubeconfig's own."""

    kubectl: Kubectl
    name: str
    namespace: str

    @property
    def qualified(self) -> str:
        return f"{CRD}/{self.name}"

    @property
    def scope(self) -> tuple[str, ...]:
        return ("--namespace", self.namespace) if self.namespace else ()

    def read(self) -> dict[str, Any]:
        return self.kubectl.read(*self.scope, self.qualified)

    def patch(self, spec: Mapping[str, object]) -> None:
        """Change these fields of spec alone, as `kubectl patch --type=merge` does."""
        words = json.dumps({"spec": spec})
        self.kubectl.run("patch", *self.scope, self.qualified, "--type=merge", "--patch", words)

    def condition(self, kind: str) -> Mapping[str, Any]:
        """One condition of the status; empty while it is not there."""
        conditions = self.read().get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def pods(self) -> list[dict[str, Any]]:
        return self.kubectl.items(*self.scope, "pods", "--selector", f"octavo.dev/service={self.name}")


def parse_reference(kubectl: Kubectl, manifest: Path) -> ServiceRef:
    metadata = yaml.safe_load(manifest.read_text())["metadata"]
    return ServiceRef(kubectl=kubectl, name=metadata["name"], namespace=metadata.get("namespace", ""))


class ServiceStalled(Exception):
    """The operator says that waiting longer cannot help; the text is its reason and message."""


def await_ready(service: ServiceRef, say: Callable[[str], None]) -> None:
    """`kubectl wait --for=condition=Ready`, with every change of the reason said meanwhile."""
    waiting = service.kubectl.start(
        "wait", *service.scope, "--for=condition=Ready", service.qualified, f"--timeout={READY_TIMEOUT}"
    )
    try:
        said = ""
        while waiting.poll() is None:
            if (now := describe_progress(service)) != said:
                say(now)
                said = now
            check_not_stalled(service)
            time.sleep(POLL_SECONDS)
        outcome = waiting.communicate()[0].strip()
    finally:
        waiting.terminate()
    say(outcome)
    if waiting.returncode:
        raise KubectlRefused(f"kubectl wait --for=condition=Ready: {outcome}")


def check_not_stalled(service: ServiceRef) -> None:
    stalled = service.condition("Stalled")
    if stalled.get("status") == "True":
        raise ServiceStalled(f"{service.name}: {stalled['reason']}: {stalled['message']}")


def describe_progress(service: ServiceRef) -> str:
    """Why it is not ready yet, and how far each pod is."""
    ready = service.condition("Ready")
    reason, message = ready.get("reason", "Waiting"), ready.get("message", "the operator has not seen it yet")
    return "\n".join((f"{reason}: {message}", *(describe_pod(pod) for pod in service.pods())))


def describe_pod(pod: Mapping[str, Any]) -> str:
    """Its newest container that has begun, and in what state it is."""
    status = pod["status"]
    containers = (*status.get("initContainerStatuses", []), *status.get("containerStatuses", []))
    begun = [one for one in containers if not is_queued(one)] or list(containers[:1])
    if not begun:
        return f"  pod {pod['metadata']['name']}: {status.get('phase', 'Pending')}"
    container = begun[-1]
    ((state, detail),) = (container.get("state") or {"waiting": {}}).items()
    words = [state, detail.get("reason", ""), "" if container["ready"] else "not ready"]
    return f"  pod {pod['metadata']['name']}: {container['name']} {', '.join(filter(None, words))}"


def is_queued(container: Mapping[str, Any]) -> bool:
    return container.get("state", {}).get("waiting", {}).get("reason") == "PodInitializing"


def describe_model(status: Mapping[str, Any]) -> list[str]:
    model = status["model"]
    return [
        f"asked for  {model['requestedRevision']}",
        f"pinned to  {model['resolvedRevision']}",
    ]


def describe_plan(status: Mapping[str, Any]) -> list[str]:
    plan = status["memoryPlan"]
    return [
        f"weights {plan['weightsBytes'] / MIB:.0f} MiB + activations {plan['activationBytes'] / MIB:.0f} MiB"
        f" of {plan['deviceMemoryBytes'] / MIB:.0f} MiB",
        f"KV cache   {plan['kvBlocks']} blocks = {plan['kvTokens']} tokens of {plan['kvBytesPerToken']} B",
        f"room for   {plan['fullLengthSequences']} sequences of {plan['maxModelLen']} tokens",
    ]
