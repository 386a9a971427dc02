"""The demo itself: install, apply, wait, ask, show. The same steps on either kind of cluster."""

from __future__ import annotations

import json

from tests.demo.chat import over_loopback
from tests.demo.conversation import QUESTION, ask, metrics_table, settled_metrics
from tests.demo.installation import CRD, ensure_namespace, install
from tests.demo.service import ServiceRef, await_ready, describe_model, describe_plan, parse_reference
from tests.demo.steps import Steps
from tests.demo.targets import Target
from tests.install.paths import NAMESPACE, ROOT, SAMPLE

SERVICE_PORT = 8000
NUM_STEPS = 4


def run(target: Target, steps: Steps) -> ServiceRef:
    """Everything from the Helm install to the engine's metrics."""
    service = parse_reference(target.kubectl, SAMPLE)
    with steps.step("Install the operator with Helm"):
        ensure_namespace(target.kubectl, NAMESPACE)
        install(target.kubectl, target.images, hub_endpoint=target.hub_endpoint)
        steps.detail(target.kubectl.run("get", "pods", "--namespace", NAMESPACE).strip())
    with steps.step(f"Apply {SAMPLE.relative_to(ROOT)} and wait until it is Ready"):
        steps.detail(target.kubectl.run("apply", *service.scope, "--filename", str(SAMPLE)).strip())
        await_ready(service, steps.detail)
        steps.detail(target.kubectl.run("get", CRD, *service.scope, "-o", "wide").strip())
    with steps.step(f"Ask it: {QUESTION}"):
        fingerprint, tables = converse(service, steps)
    with steps.step("What the operator pinned and planned, and what the engine measured"):
        status = service.read()["status"]
        steps.detail("\n".join(("Revision", *describe_model(status), f"answered by {fingerprint}")))
        steps.detail("\n".join(("Memory plan", *describe_plan(status))))
        steps.detail("\n".join(("Engine metrics", *tables)))
    return service


def converse(service: ServiceRef, steps: Steps) -> tuple[str, list[str]]:
    target = (*service.scope, f"service/{service.name}")
    with service.kubectl.port_forward(*target, port=SERVICE_PORT) as port:
        connect = over_loopback(port)
        fingerprint, during = ask(connect, service.name, steps.out)
        return fingerprint, metrics_table(during, settled_metrics(connect))


def farewell(service: ServiceRef, down: str) -> str:
    """How to go on from the user's own shell."""
    kubectl = service.kubectl
    name = " ".join(("kubectl" if kubectl.kubeconfig is None else str(kubectl.program), *service.scope))
    export = [f"  export KUBECONFIG={kubectl.kubeconfig}"] if kubectl.kubeconfig else []
    question = json.dumps({"model": service.name, "messages": [{"role": "user", "content": "Who are you?"}]})
    return "\n".join(
        [
            "Go on from your own shell:",
            *export,
            f"  {name} get {CRD} -o wide",
            f"  {name} port-forward service/{service.name} {SERVICE_PORT}:{SERVICE_PORT} &",
            f"  curl http://127.0.0.1:{SERVICE_PORT}/v1/chat/completions \\",
            f"    -H 'Content-Type: application/json' -d '{question}'",
            f"Remove it all: {down}",
        ]
    )
