"""Octavo put onto a cluster by its own Helm chart, as a user would."""

from __future__ import annotations

from dataclasses import dataclass

from tests.demo.kubectl import Kubectl
from tests.install.helm import run_helm
from tests.install.paths import CHART, NAMESPACE, RELEASE

OPERATOR = "deployment/octavo-operator"
LEASE = "octavo-operator"
CRD = "inferenceservices.octavo.dev"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
INSTALL_TIMEOUT = "10m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """The two image references that a cluster pulls."""

    engine: str
    operator: str


def ensure_namespace(kubectl: Kubectl, name: str) -> bool:
    """Make a namespace where only restricted pods may run; says whether it was new."""
    if kubectl.attempt("get", "namespace", name).returncode == 0:
        return False
    kubectl.run("create", "namespace", name)
    kubectl.run("label", "namespace", name, RESTRICTED)
    return True


def install(kubectl: Kubectl, images: Images, *, hub_endpoint: str) -> str:
    """Install or upgrade the release and wait until the operator is available."""
    return run_helm(
        *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE),
        *("--set-string", f"image.engine={images.engine}"),
        *("--set-string", f"image.operator={images.operator}"),
        *("--set-string", f"hubEndpoint={hub_endpoint}"),
        *("--wait", "--timeout", INSTALL_TIMEOUT),
        environment=kubectl.environment,
    )


def is_installed(kubectl: Kubectl) -> bool:
    """Whether Helm knows the release."""
    listed = run_helm(
        *("list", "--namespace", NAMESPACE, "--short", "--all"), environment=kubectl.environment
    )
    return RELEASE in listed.split()


def uninstall(kubectl: Kubectl) -> None:
    """Remove the release, and the Lease that its operator made; the definition stays, as Helm is told."""
    run_helm(
        *("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait"),
        environment=kubectl.environment,
    )
    kubectl.run("delete", "lease", LEASE, "--namespace", NAMESPACE, "--ignore-not-found")
