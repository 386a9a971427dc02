"""What there is of a cluster at this moment, read from the machine rather than from memory."""

from tests.cluster.local.cgroups import find_cgroups
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import find_processes
from tests.cluster.local.record import read_record


def read_status(paths: ClusterPaths) -> dict[str, object]:
    """State (`up`, `partial` or `down`), processes and cgroups; everything `down` would remove."""
    record, processes, cgroups = read_record(paths), find_processes(paths.root), find_cgroups(paths)
    is_up = record is not None and record.is_whole({process.label for process in processes})
    return {
        "name": paths.name,
        "state": "up" if is_up else "partial" if record or processes or cgroups else "down",
        "mode": record.mode if record else None,
        "kubeconfig": str(paths.kubeconfig) if is_up else None,
        "logs": str(paths.logs),
        "processes": {process.pid: process.label for process in processes},
        "cgroups": [str(cgroup) for cgroup in cgroups],
    }
