"""The node's view of the file system: the usual paths, with this cluster's folders behind them.

Several paths are fixed in the programs (/run/containerd/s, /var/lib/cni, /var/log/containers,
/var/lib/kubelet/device-plugins, /run/xtables.lock). Mounting over them, in the sandbox's own mount namespace,
keeps clusters apart from each other and from what else runs here, and goes away with the sandbox.
"""

from pathlib import Path
from typing import Final

from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import Launcher

KERNEL_SETTINGS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What a kubelet writes to /proc/sys unless it reads these values there.

They hold for the whole machine, which is not ours, so the kubelet is shown plain files in their place."""

VAR_LIB: Final = ("kubelet", "cni")
"""Folders of /var/lib that belong to the node."""


def mount_node_folders(inside: Launcher, paths: ClusterPaths, image_store: Path) -> None:
    """Mount the node's folders over the usual paths."""
    folders = {Path("/var/lib") / name: paths.node / name for name in VAR_LIB}
    folders[Path("/var/lib/containerd")] = image_store
    folders[Path("/var/log")] = paths.logs / "node"
    lines = ["mount -t tmpfs -o mode=755 tmpfs /run"]
    for mount_point, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        mount_point.mkdir(parents=True, exist_ok=True)
        lines.append(f"mount --bind '{folder}' {mount_point}")
    lines += _kernel_settings_lines(paths.node / "kernel-settings")
    inside.run(["sh", "-euc", "\n".join(lines)])


def _kernel_settings_lines(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, value in KERNEL_SETTINGS.items():
        file = folder / name.replace("/", "-")
        file.write_text(f"{value}\n")
        lines.append(f"mount --bind '{file}' /proc/sys/{name}")
    return lines
