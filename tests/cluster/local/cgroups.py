"""The cgroup below which everything the node runs is accounted.

The kubelet is given one of its own as its root, in every hierarchy that this machine has mounted: one with
cgroup v2, about ten with v1. Pods' cgroups lie below it, so removing it removes what a dead kubelet left.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import ClusterPaths

V2_CONTROLLERS: Final = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
REMOVAL_SECONDS: Final = 10.0
"""A dead process leaves its cgroup a moment after it has left /proc."""


def cgroup_name(paths: ClusterPaths) -> str:
    """The cgroup of a cluster, below each hierarchy's root.

    Cgroups are the one thing that all checkouts on a machine share, hence the digest of the folder.
    """
    return f"octavo-{paths.name}-{hashlib.sha256(bytes(paths.root)).hexdigest()[:8]}"


def make_cgroups(paths: ClusterPaths) -> None:
    """Make the cluster's cgroup in every hierarchy."""
    for hierarchy in _hierarchies():
        _enable_controllers(hierarchy)
        (hierarchy / cgroup_name(paths)).mkdir(exist_ok=True)
        _enable_controllers(hierarchy / cgroup_name(paths))


def find_cgroups(paths: ClusterPaths) -> list[Path]:
    """The cluster's cgroup in each hierarchy where it exists."""
    candidates = (hierarchy / cgroup_name(paths) for hierarchy in _hierarchies())
    return [cgroup for cgroup in candidates if cgroup.is_dir()]


def remove_cgroups(paths: ClusterPaths) -> None:
    """Remove them, deepest first; the processes in them must have ended or be about to."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while remaining := find_cgroups(paths):
        if time.monotonic() > deadline:
            raise ClusterError(f"these cgroups could not be removed: {', '.join(map(str, remaining))}")
        for root in remaining:
            _remove_tree(root)


def _remove_tree(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # busy: a process is still leaving
            time.sleep(0.02)


def _hierarchies() -> Iterator[Path]:
    """Where cgroup file systems are mounted, from /proc/self/mountinfo."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, file_system = line.partition(" - ")
        if file_system.split()[0] in ("cgroup", "cgroup2"):
            yield Path(mount.split()[4])


def _enable_controllers(cgroup: Path) -> None:
    """Let children use what the kernel offers (v2 only; one that is absent refuses alone)."""
    control = cgroup / "cgroup.subtree_control"
    if not control.exists():
        return
    for controller in V2_CONTROLLERS:
        try:
            control.write_text(f"+{controller}")
        except OSError:
            continue
