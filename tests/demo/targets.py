"""The two places the demo can run: a local cluster that it starts itself, or the user's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.images import push_images
from tests.cluster.local import Cluster, remove_abandoned, start_full
from tests.cluster.local.binaries import FULL_PROGRAMS, LIGHT_PROGRAMS, find_program, require_programs
from tests.cluster.local.packages import install_packages
from tests.cluster.local.paths import cluster_paths
from tests.demo.hub import start_hub
from tests.demo.installation import Images
from tests.demo.kubectl import Kubectl
from tests.demo.steps import Steps
from tests.install.paths import ROOT
from tests.support.sample_model import sample_model_dir

CLUSTER_NAME = "octavo"


class MissingSetting(Exception):
    """The user's own cluster needs something that only the user can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster that is ready to be installed on."""

    kubectl: Kubectl
    images: Images
    hub_endpoint: str
    log_folders: tuple[Path, ...] = ()


def local_log_folders() -> tuple[Path, ...]:
    return (cluster_paths(CLUSTER_NAME).logs,)


def start_local(steps: Steps) -> Target:
    """Make everything that Octavo is installed on and serves from; what is there already is quick."""
    with steps.step("Install Debian packages that are missing on this machine"):
        install_packages()
    with steps.step("Build Kubernetes, etcd and Helm from their pinned Go modules"):
        require_programs(FULL_PROGRAMS)
    with steps.step("Turn the sample model into an ordinary model repository"):
        steps.detail(str(sample_model_dir()))
    with steps.step("Start the cluster"):
        remove_abandoned()
        cluster = start_full(CLUSTER_NAME)
        steps.detail(f"kubeconfig {cluster.kubeconfig}")
    with steps.step("Build the engine's and the operator's images and push them to the cluster's registry"):
        images = Images(**push_images(cluster))
        steps.detail(f"engine   {images.engine}\noperator {images.operator}")
    with steps.step("Start the model hub inside the cluster's network"):
        hub = start_hub(cluster)
        steps.detail(f"{hub.endpoint}, log {hub.log}")
    return Target(
        kubectl=local_kubectl(cluster),
        images=images,
        hub_endpoint=hub.endpoint,
        log_folders=local_log_folders(),
    )


def local_kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(program=cluster.bin_dir / "kubectl", kubeconfig=cluster.kubeconfig)


def run_module(*arguments: str) -> None:
    """Run one of the project's own commands with its progress shown as it comes."""
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True)


def use_existing(steps: Steps, environment: Mapping[str, str]) -> Target:
    """The cluster of the user's current kubeconfig, with images that its nodes can pull."""
    with steps.step("Look at the current cluster"):
        missing = [name for name in ("ENGINE_IMAGE", "OPERATOR_IMAGE") if not environment.get(name)]
        if missing:
            raise MissingSetting(
                f"{' and '.join(missing)}: not set. CLUSTER=existing installs images that the cluster's "
                "nodes can pull: build engine/Dockerfile and operator/Dockerfile, push them, and name them."
            )
        kubectl = Kubectl(program=find_kubectl(), kubeconfig=None)
        steps.detail(kubectl.run("config", "current-context").strip())
        steps.detail(kubectl.run("version").strip())
    return Target(
        kubectl=kubectl,
        images=Images(engine=environment["ENGINE_IMAGE"], operator=environment["OPERATOR_IMAGE"]),
        hub_endpoint=environment.get("HUB_ENDPOINT", ""),
    )


def find_kubectl() -> Path:
    built = {program.name: find_program(program) for program in LIGHT_PROGRAMS}["kubectl"]
    found = shutil.which("kubectl") or built
    if found is None:
        raise MissingSetting("kubectl: not found on PATH. Install it, or build it by `make cluster`.")
    return Path(found)
