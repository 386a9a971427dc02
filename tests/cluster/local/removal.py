"""Taking a cluster away, from whatever state it is in.

Killing the processes is enough for most of it: mounts, network devices and pods live in namespaces that the
kernel drops with their last process (see sandbox.py). What remains are cgroups and files.
"""

import shutil

from tests.cluster.local.cgroups import remove_cgroups
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import kill_processes


def remove_cluster(paths: ClusterPaths, *, keep_logs: bool = True) -> None:
    """Remove all of a cluster but its logs; does nothing where nothing is left.

    Raises where a process or cgroup resists, so a return means that nothing of the cluster runs.
    """
    kill_processes(paths.root)
    remove_cgroups(paths)
    kept = {paths.logs} if keep_logs else set()
    for entry in paths.root.iterdir() if paths.root.exists() else ():
        if entry in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if paths.root.exists() and not keep_logs:
        paths.root.rmdir()
