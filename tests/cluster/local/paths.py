"""Where the local cluster keeps its files.

*State* belongs to one cluster and goes with it: `${OCTAVO_STATE:-<repository>/.octavo}/clusters/NAME`.
The *cache* holds what is slow to make and good for every cluster: `${OCTAVO_CACHE:-~/.cache/octavo}`.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError

REPOSITORY: Final = Path(__file__).resolve().parents[3]

CLUSTER_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""A cluster's name is part of folder, cgroup and node names."""


def cache_dir() -> Path:
    """The folder of things that outlive a cluster: programs, images, models."""
    configured = os.environ.get("OCTAVO_CACHE")
    return Path(configured).absolute() if configured else Path.home() / ".cache" / "octavo"


def clusters_dir() -> Path:
    """The folder that holds one folder per cluster."""
    configured = os.environ.get("OCTAVO_STATE")
    return (Path(configured).absolute() if configured else REPOSITORY / ".octavo") / "clusters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPaths:
    """The files of one cluster; `root` also marks its processes (see processes.py)."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def lock(self) -> Path:
        """Beside the folder, so that it outlives the folder's removal."""
        return self.root.with_name(f".{self.name}.lock")

    @property
    def record(self) -> Path:
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """What the API server was asked by service accounts."""
        return self.logs / "audit.log"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def node(self) -> Path:
        """What the node's programs believe is under /var/lib."""
        return self.root / "node"

    def make_folders(self) -> None:
        for folder in (self.logs, self.bin, self.certificates, self.config, self.etcd, self.node):
            folder.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)


def cluster_paths(name: str) -> ClusterPaths:
    """The files of the cluster called `name`."""
    if not CLUSTER_NAME.fullmatch(name):
        raise ClusterError(
            f"cluster name {name!r}: use a lower-case letter, "
            "then at most 39 lower-case letters, digits or '-'"
        )
    return ClusterPaths(root=clusters_dir() / name)
