"""Starting a cluster's processes, and finding every one of them again.

Each process is started with the cluster's folder in its environment, and its children inherit that. So the
kernel itself keeps the list: whatever the moment at which this program dies, the next run finds what was
started by reading /proc/*/environ, and no recorded process id can have been given to someone else.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError

CLUSTER_MARK: Final = "OCTAVO_LOCAL_CLUSTER"
"""Environment variable that names the folder of the cluster a process belongs to."""

LABEL_MARK: Final = "OCTAVO_LOCAL_PROCESS"
"""Environment variable that names what a process is, such as `etcd`."""

POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProcess:
    """A live process that carries a cluster's mark."""

    pid: int
    parent: int
    start_ticks: int  # since boot; with the pid it names one process for good
    label: str
    cluster: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Starts processes that belong to one cluster, by a prefix such as `nsenter …` inside its namespaces."""

    cluster: Path
    logs: Path
    prefix: tuple[str, ...] = ()
    started: list[tuple[str, "subprocess.Popen[bytes]"]] = field(default_factory=list)

    def start(self, label: str, argv: Sequence[str | Path]) -> "subprocess.Popen[bytes]":
        """Start a long-running process that outlives this one; its output goes to a log of its own."""
        with self.log(label).open("ab") as log:
            process = subprocess.Popen(
                [*self.prefix, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.cluster,
                env=marked_environment(self.cluster, label),
                start_new_session=True,
            )
        self.started.append((label, process))
        return process

    def run(self, argv: Sequence[str | Path]) -> str:
        """Run a short command to its end and return its output."""
        command = [*self.prefix, *map(str, argv)]
        environment = marked_environment(self.cluster, "command")
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            shown, output = " ".join(map(str, argv)), (done.stderr or done.stdout).strip()
            raise ClusterError(f"`{shown}` exited with {done.returncode}: {output}")
        return done.stdout

    def log(self, label: str) -> Path:
        return self.logs / f"{label}.log"

    def check_alive(self) -> None:
        """Raise with the end of its log if a process that should be running has ended."""
        for label, process in self.started:
            code = process.poll()
            if code is not None:
                raise ClusterError(f"{label} ended with {code}; {log_tail(self.log(label))}")

    def wait_for(self, what: str, check: Callable[[], bool], *, seconds: float) -> None:
        """Poll until `check` holds; fail early when a process died, and name the logs when time is up."""
        deadline = time.monotonic() + seconds
        while not check():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not so after {seconds:.0f} s; the logs are in {self.logs}")
            time.sleep(POLL_SECONDS)


def marked_environment(cluster: Path, label: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment plus the marks that make a process findable."""
    return {**os.environ, **(extra or {}), CLUSTER_MARK: str(cluster), LABEL_MARK: label}


def log_tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log, introduced by its path."""
    text = log.read_text(errors="replace") if log.exists() else ""
    end = "\n    ".join(text.splitlines()[-lines:])
    return f"the end of {log}:\n    {end}"


def find_processes(cluster: Path) -> list[FoundProcess]:
    """Every live process of one cluster, oldest first."""
    return [process for process in find_all_processes() if process.cluster == cluster]


def find_all_processes() -> list[FoundProcess]:
    """Every live process of every local cluster on this machine that this user may see, oldest first."""
    found = (read_process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return sorted((process for process in found if process), key=lambda process: process.start_ticks)


def read_process(pid: int) -> FoundProcess | None:
    """The process with this id, if it lives and carries a mark."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if CLUSTER_MARK.encode() not in environment:
            return None
        parent, start_ticks = read_parent_and_start(pid)
    except OSError:
        return None
    marks = dict(_variables(environment))
    cluster = marks.get(CLUSTER_MARK)
    if cluster is None:
        return None
    label = marks.get(LABEL_MARK, "")
    return FoundProcess(pid=pid, parent=parent, start_ticks=start_ticks, label=label, cluster=Path(cluster))


def read_parent_and_start(pid: int) -> tuple[int, int]:
    """Parent id and start time in clock ticks, from /proc/PID/stat; the name before them may hold spaces."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])


def kill_processes(cluster: Path, *, seconds: float = 20.0) -> None:
    """End every process of the cluster. Its data goes too, so nothing is lost by not asking first."""
    deadline = time.monotonic() + seconds
    while remaining := find_processes(cluster):
        if time.monotonic() > deadline:
            listed = ", ".join(f"{process.label} ({process.pid})" for process in remaining)
            raise ClusterError(f"these processes did not end within {seconds:.0f} s of SIGKILL: {listed}")
        for process in remaining:
            _kill(process)
        time.sleep(POLL_SECONDS)


def _kill(process: FoundProcess) -> None:
    """Send SIGKILL through a descriptor, so that it cannot reach a later process with the same id."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if read_process(process.pid) == process:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _variables(environment: bytes) -> Iterator[tuple[str, str]]:
    for item in environment.decode(errors="replace").split("\0"):
        name, separator, value = item.partition("=")
        if separator:
            yield name, value
