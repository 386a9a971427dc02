"""A stage for the operator: one namespace of a real API server, its own model hub, the real process.

The operator runs as it is shipped: as a service account with exactly the rules of its role, in one
namespace. There is no node, so the play's author is the kubelet: `make_ready` and `fail_pod` write pod
status.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml

from octavo_operator.api.crd import build_crd
from octavo_operator.api.rbac import build_lease_rules, build_rules
from tests.cluster.fake_engines import FakeEngines
from tests.cluster.local.audit import Request, read_requests
from tests.cluster.local.cluster import Cluster
from tests.support.model_hub import HubStore, ModelHub

REPO = "octavo-tests/tiny"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}
PLURAL = "inferenceservices"
GROUPS = {
    PLURAL: "/apis/octavo.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "replicasets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "httproutes": "/apis/gateway.networking.k8s.io/v1",
    "inferencepools": "/apis/inference.networking.k8s.io/v1",
}
WAIT_SECONDS = 60.0
STOP_SECONDS = 15.0
ValueT = TypeVar("ValueT")
Body = dict[str, Any]


def wait_for(read: Callable[[], ValueT | None], what: str, *, seconds: float = WAIT_SECONDS) -> ValueT:
    """The first true value that `read` returns."""
    deadline = time.monotonic() + seconds
    while True:
        value = read()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def install_definition(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(build_crd()))
    wait_for(lambda: cluster.api().exists(f"{GROUPS[PLURAL]}/{PLURAL}"), "the definition to be served")


class Refused(Exception):
    """The API server took no notice of what the user wanted."""


@dataclass
class Stage:
    """What a test plays on."""

    cluster: Cluster
    namespace: str
    store: HubStore
    hub: ModelHub
    folder: Path
    engine_image: str = "example.test/engine:1"
    upstream_interval: float = 300.0
    private_interval: float = 1800.0
    process: subprocess.Popen[bytes] | None = None
    rules: list[dict[str, Any]] = field(default_factory=build_rules)
    """What the operator's account may do."""
    lease_rules: list[dict[str, Any]] = field(default_factory=build_lease_rules)
    """What it may do with Leases, in its own namespace."""
    everywhere: bool = False
    """With a ClusterRole, watching all namespaces, as the chart installs it by default."""
    identity: str = "first"
    """What the Lease calls the operator; one that starts again under the same name need not wait."""
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    engines: FakeEngines = field(default_factory=FakeEngines)

    @cached_property
    def client(self) -> httpx.Client:
        """With the user's own rights; much faster than starting kubectl for every look."""
        certificates = self.cluster.paths.certificates
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
        base = f"https://127.0.0.1:{self.cluster.record.api_port}"
        return httpx.Client(base_url=base, verify=context, trust_env=False, timeout=10)

    def path(self, plural: str, name: str = "") -> str:
        place = f"{GROUPS.get(plural, '/api/v1')}/namespaces/{self.namespace}/{plural}"
        return f"{place}/{name}" if name else place

    # The operator ---------------------------------------------------------------------------------
    def open(self) -> None:
        self.cluster.kubectl("create", "namespace", self.namespace)
        self.kubectl("create", "serviceaccount", "octavo-operator")
        self.grant()

    @property
    def account(self) -> str:
        return f"{self.namespace}:octavo-operator"

    def asked(self) -> list[Request]:
        """What the operator has asked of the API server so far, by that one's own record."""
        return list(read_requests(self.cluster.paths.audit_log, self.account))

    def grant(self) -> None:
        """The account's rules, in its namespace or everywhere; those for the Lease in its namespace alone."""
        kind = "ClusterRole" if self.everywhere else "Role"
        self._grant(kind, self.namespace if self.everywhere else "octavo-operator", self.rules)
        self._grant("Role", "octavo-operator-lease", self.lease_rules)

    def _grant(self, kind: str, name: str, rules: list[dict[str, Any]]) -> None:
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, **({"namespace": self.namespace} if kind == "Role" else {})},
            "rules": rules,
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(role))
        binding = f"{kind.lower()}binding"
        self.kubectl("create", binding, name, f"--{kind.lower()}={name}", f"--serviceaccount={self.account}")

    def write_kubeconfig(self) -> Path:
        """The server as this machine sees it, the user as the operator's pod would be."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        token = self.kubectl("create", "token", "octavo-operator").strip()
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        path = self.folder / "operator.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def start_operator(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.write_kubeconfig()),
            "OCTAVO_ENGINE_IMAGE": self.engine_image,
            "OCTAVO_HUB_ENDPOINT": self.hub.endpoint,
            "OCTAVO_WATCH_NAMESPACE": "" if self.everywhere else self.namespace,
            "OCTAVO_LEASE_NAMESPACE": self.namespace,
            "OCTAVO_IDENTITY": self.identity,
            "OCTAVO_UPSTREAM_INTERVAL_SECONDS": str(self.upstream_interval),
            "OCTAVO_PRIVATE_INTERVAL_SECONDS": str(self.private_interval),
            "OCTAVO_LOG_FORMAT": "text",
            "OCTAVO_HEALTH_ADDRESS": f"127.0.0.1:{self.health_port}",
            "OCTAVO_METRICS_ADDRESS": f"127.0.0.1:{self.metrics_port}",
        }
        with (self.folder / "operator.log").open("ab") as log:
            command = [sys.executable, "-m", "octavo_operator.shell"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def require_operator(self) -> None:
        """Waiting for one that has ended by itself would be in vain."""
        assert self.process is None or self.process.poll() is None, f"the operator ended:\n{self.log()}"

    def stop_operator(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=STOP_SECONDS)
        self.process = None
        return code

    def log(self) -> str:
        path = self.folder / "operator.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop_operator()
            if self.process is not None:
                self.process.kill()
                self.process.wait()
        self.engines.close()
        self.client.close()
        if self.everywhere:
            self.cluster.kubectl("delete", "clusterrole,clusterrolebinding", self.namespace)
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    # The user -------------------------------------------------------------------------------------
    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def apply(self, name: str = "tiny", **spec: object) -> None:
        """As a GitOps tool would: server-side, under its own name."""
        body = {
            "apiVersion": "octavo.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {"model": {"uri": f"hf://{REPO}"}, "resources": {"cpu": "500m"}, **spec},
        }
        answer = self.client.patch(
            self.path(PLURAL, name),
            params={"fieldManager": "gitops", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(body),
        )
        if answer.is_error:
            raise Refused(answer.json()["message"])

    def serve(self, commit: str, **spec: object) -> None:
        """Apply, and play kubelet until the service is ready at this commit."""
        self.apply(**spec)
        self.make_ready(self.wait_pods(commit))
        self.wait_condition("Ready", "True")

    def add_commit(self, note: str) -> str:
        files: dict[str, Path | bytes] = {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors": b"weights",
            "note.txt": note.encode(),
        }
        return self.store.add_commit(REPO, files, message=note)

    # Reading --------------------------------------------------------------------------------------
    def list(self, plural: str, selector: str = "") -> list[Body]:
        parameters = {"labelSelector": selector} if selector else {}
        answer = self.client.get(self.path(plural), params=parameters)
        items: list[Body] = answer.raise_for_status().json()["items"]
        return items

    def service(self, name: str = "tiny") -> Body:
        answer = self.client.get(self.path(PLURAL, name))
        body: Body = answer.raise_for_status().json()
        return body

    def condition(self, kind: str, name: str = "tiny") -> Body:
        conditions = self.service(name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def wait_condition(
        self, kind: str, status: str, *, reason: str | None = None, name: str = "tiny"
    ) -> Body:
        """Of the generation that is there now."""

        def read() -> Body | None:
            self.require_operator()
            body = self.service(name)
            for one in body.get("status", {}).get("conditions", ()):
                fits = one["type"] == kind and one["status"] == status and reason in (None, one["reason"])
                if fits and one["observedGeneration"] == body["metadata"]["generation"]:
                    found: Body = one
                    return found
            return None

        return wait_for(read, f"{kind}={status} ({reason})")

    def pods(self, commit: str = "") -> list[Body]:
        """Engine pods that stay, of one commit if that is given."""
        pods = self.list("pods", "app.kubernetes.io/managed-by=octavo,!octavo.dev/question")
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in staying if commit in json.dumps(pod["spec"])]

    def wait_resolver(self, *, other_than: str = "") -> Body:
        """The pod that looks up what the operator may not see."""

        def read() -> Body | None:
            self.require_operator()
            pods = self.list("pods", "octavo.dev/question")
            new = [pod for pod in pods if pod["metadata"]["uid"] != other_than]
            return new[0] if len(new) == 1 else None

        return wait_for(read, "one resolver pod")

    def wait_pods(self, commit: str, number: int = 1) -> list[Body]:
        def read() -> tuple[list[Body]] | None:
            self.require_operator()
            pods = self.pods(commit)
            return (pods,) if len(pods) == number else None

        (pods,) = wait_for(read, f"{number} pods of commit {commit}")
        return pods

    # The kubelet ----------------------------------------------------------------------------------
    def make_ready(self, pods: list[Body]) -> None:
        for pod in pods:
            address = self.engines.start(pod, self.manifest_digest(pod))
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodScheduled", "Ready")
            ]
            self.write_pod_status(pod, {"phase": "Running", "podIP": address, "conditions": conditions})

    def manifest_digest(self, pod: Body) -> str:
        """Of the files that its revision has, if the operator knows it."""
        labels = pod["metadata"]["labels"]
        name = f"{labels['octavo.dev/service']}-{labels['octavo.dev/revision']}"
        answer = self.client.get(self.path("controllerrevisions", name))
        data = {} if answer.is_error else answer.json()["data"]
        return str(data.get("manifestDigest", ""))

    def fail_pod(self, pod: Body, *, container: str, exit_code: int, message: str) -> None:
        """As after a first try: the container waits for its next one."""
        ended = {"exitCode": exit_code, "reason": "Error", "message": message}
        status = {
            "name": container,
            "ready": False,
            "restartCount": 1,
            "image": self.engine_image,
            "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": ended},
        }
        kind = "initContainerStatuses" if container == "fetch" else "containerStatuses"
        self.write_pod_status(pod, {"phase": "Pending", kind: [status]})

    def end_resolver(self, pod: Body, phase: str, message: str) -> None:
        """As it runs to its end and leaves a message behind."""
        ended = {"exitCode": int(phase == "Failed"), "reason": "Ended", "message": message}
        status = {
            "name": "resolve",
            "ready": False,
            "restartCount": 0,
            "image": self.engine_image,
            "imageID": "",
            "state": {"terminated": ended},
        }
        self.write_pod_status(pod, {"phase": phase, "containerStatuses": [status]})

    def write_pod_status(self, pod: Body, status: Body) -> None:
        path = self.path("pods", pod["metadata"]["name"]) + "/status"
        headers = {"Content-Type": "application/merge-patch+json"}
        self.client.patch(path, json={"status": status}, headers=headers).raise_for_status()
