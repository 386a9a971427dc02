"""A cluster as its users see it, and starting one."""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.local.binaries import FULL_PROGRAMS, LIGHT_PROGRAMS, Program, require_programs
from tests.cluster.local.bring_up import bring_up_full, bring_up_light
from tests.cluster.local.control_plane import ApiClient
from tests.cluster.local.failure import ClusterError
from tests.cluster.local.network import NODE_ADDRESS
from tests.cluster.local.packages import require_root_and_packages
from tests.cluster.local.paths import ClusterPaths, cluster_paths, clusters_dir
from tests.cluster.local.processes import find_processes, read_parent_and_start
from tests.cluster.local.progress import say
from tests.cluster.local.record import ClusterRecord, Mode, Owner, cluster_lock, read_record
from tests.cluster.local.registry import REGISTRY
from tests.cluster.local.removal import remove_cluster
from tests.cluster.local.sandbox import Sandbox, find_sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster."""

    paths: ClusterPaths
    record: ClusterRecord

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def kubeconfig(self) -> Path:
        """For this machine: the server is a loopback address, the user may do everything."""
        return self.paths.kubeconfig

    @property
    def log_dir(self) -> Path:
        return self.paths.logs

    @property
    def bin_dir(self) -> Path:
        """kubectl, helm and the cluster's own programs."""
        return self.paths.bin

    @property
    def node_ip(self) -> str:
        """The node's address, which pods reach; only in a full cluster."""
        self._sandbox()
        return NODE_ADDRESS

    @property
    def registry(self) -> str:
        """What the name of an image pulled inside begins with; only in a full cluster."""
        self._sandbox()
        return REGISTRY

    @property
    def netns(self) -> Path:
        """The node's network namespace, for `nsenter --net=`; only in a full cluster."""
        return self._sandbox().netns

    @property
    def enter(self) -> tuple[str, ...]:
        """Prefix of a command that runs in the node's namespaces; only in a full cluster."""
        return self._sandbox().enter

    def run_inside(self, argv: Sequence[str | Path], *, log: Path | None = None) -> "subprocess.Popen[bytes]":
        """Start a program in the node's namespaces.

        It ends when the returned process is terminated, and with the cluster at the latest.
        """
        return self._sandbox().start(argv, log=log)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl against this cluster and return its output."""
        command = [str(self.bin_dir / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return done.stdout

    def api(self) -> ApiClient:
        return ApiClient(port=self.record.api_port, credentials=self.paths.certificates)

    def stop(self, *, keep_logs: bool = True) -> None:
        """Remove the cluster; returns once nothing of it is left, raises if something is."""
        with cluster_lock(self.paths):
            remove_cluster(self.paths, keep_logs=keep_logs)

    def _sandbox(self) -> Sandbox:
        sandbox = find_sandbox(self.paths)
        if sandbox is None:
            raise ClusterError(f"cluster {self.name!r} has no node: start it with start_full or `up`")
        return sandbox


def start_light(name: str = "octavo", *, owner_pid: int | None = None) -> Cluster:
    """Start (or find running) a cluster without a node: etcd, API server, controller manager.

    With `owner_pid`, the cluster counts as abandoned once that process has ended.
    """
    return _start(name, "light", LIGHT_PROGRAMS, bring_up_light, owner_pid)


def start_full(name: str = "octavo", *, owner_pid: int | None = None) -> Cluster:
    """Start (or find running) a cluster with a node that runs pods. Needs root."""
    require_root_and_packages()
    return _start(name, "full", FULL_PROGRAMS, bring_up_full, owner_pid)


def find_cluster(name: str) -> Cluster | None:
    """The cluster of that name, if it is up and whole."""
    paths = cluster_paths(name)
    record = read_record(paths)
    running = {process.label for process in find_processes(paths.root)}
    if record is None or not record.is_whole(running):
        return None
    return Cluster(paths=paths, record=record)


def remove_abandoned() -> list[str]:
    """Remove the clusters whose owner has ended; what a killed test run left."""
    removed = []
    for folder in sorted(clusters_dir().glob("[a-z]*")):
        paths = cluster_paths(folder.name)
        record = read_record(paths)
        if record and record.owner and not _lives(record.owner):
            with cluster_lock(paths):
                remove_cluster(paths, keep_logs=False)
            removed.append(paths.name)
    return removed


def _start(
    name: str,
    mode: Mode,
    needed: Iterable[Program],
    bring_up: Callable[[ClusterPaths, Mapping[str, Path], Owner | None], ClusterRecord],
    owner_pid: int | None,
) -> Cluster:
    paths = cluster_paths(name)
    programs = require_programs(needed)
    owner = Owner(pid=owner_pid, start_ticks=read_parent_and_start(owner_pid)[1]) if owner_pid else None
    with cluster_lock(paths):
        running = find_cluster(name)
        if running is not None and _is_usable(running, mode):
            return running
        remove_cluster(paths, keep_logs=False)
        try:
            return Cluster(paths=paths, record=bring_up(paths, programs, owner))
        except BaseException:
            remove_cluster(paths)
            say(f"The {mode} cluster {name!r} did not start. Its logs are kept in {paths.logs}")
            raise


def _is_usable(cluster: Cluster, mode: Mode) -> bool:
    if cluster.record.mode != mode:
        raise ClusterError(
            f"cluster {cluster.name!r} is running as a {cluster.record.mode} cluster: "
            f"stop it (`python -m tests.cluster.local down --name {cluster.name}`) or choose another name"
        )
    return cluster.api().is_ready()


def _lives(owner: Owner) -> bool:
    try:
        return read_parent_and_start(owner.pid)[1] == owner.start_ticks
    except OSError:
        return False
