"""The namespaces a node lives in, held by one process that is process 1 inside.

Process 1 of a process-id namespace is special: when it dies, the kernel kills every other process in the
namespace, and with the last process go the mount namespace (so every mount) and the network namespace (so
every interface, route and firewall rule). One SIGKILL therefore removes the whole node, at any point of its
start, pods included; nothing has to be recorded and undone piece by piece.

`ip netns exec` will not do for entering: it mounts a fresh /sys, which hides the cgroups, and the kubelet
exits. `nsenter` enters the namespaces as they are.
"""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import FoundProcess, find_processes, marked_environment

HOLDER: Final = "sandbox"
"""Label of the process that holds the namespaces."""

HOLDER_PROGRAM: Final = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans end up here: let the kernel reap them
print("ready", flush=True)
while True:
    signal.pause()
"""

UNSHARE: Final = (
    "unshare",
    "--fork",
    "--kill-child",
    "--pid",
    "--mount-proc",
    "--mount",
    "--net",
    "--ipc",
    "--uts",
)

END_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "TERM", "--")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The namespaces of one cluster, named by the process that holds them."""

    paths: ClusterPaths
    holder: FoundProcess

    @property
    def netns(self) -> Path:
        return Path(f"/proc/{self.holder.pid}/ns/net")

    @property
    def enter(self) -> tuple[str, ...]:
        """Prefix of a command that runs inside."""
        options = ("--mount", "--net", "--ipc", "--uts", "--pid")
        return ("nsenter", f"--target={self.holder.pid}", *options, "--")

    @property
    def enter_lifetime_only(self) -> tuple[str, ...]:
        """Prefix of a command that stays in this machine's network yet ends with the sandbox."""
        return ("nsenter", f"--target={self.holder.pid}", "--pid", "--")

    def start(self, argv: Sequence[str | Path], *, log: Path | None) -> "subprocess.Popen[bytes]":
        """Start a program inside on behalf of a user of the cluster.

        The process returned is `nsenter`, which passes no signal on; so the program is told to end when its
        parent does. It is in a session of its own, where Ctrl-C in this terminal does not reach it.
        """
        command = [*self.enter, *END_WITH_PARENT, *map(str, argv)]
        with log.open("ab") if log else nullcontext() as output:
            return subprocess.Popen(
                command,
                env=marked_environment(self.paths.root, "guest"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def open_sandbox(paths: ClusterPaths, *, keep_open: int) -> Sandbox:
    """Make the namespaces. The holder inherits the descriptor `keep_open` and with it any lock it has."""
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, "-I", "-S", "-c", HOLDER_PROGRAM],
        env=marked_environment(paths.root, HOLDER),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(keep_open,),
    )
    assert process.stdout and process.stderr, "both are pipes"
    with process.stdout, process.stderr:
        if process.stdout.readline() != b"ready\n":
            raise ClusterError(f"cannot make namespaces: {process.stderr.read().decode().strip()}")
    sandbox = find_sandbox(paths)
    assert sandbox is not None, "the holder has just said that it runs"
    return sandbox


def find_sandbox(paths: ClusterPaths) -> Sandbox | None:
    """The cluster's namespaces, if they exist: the holder is the child of `unshare`."""
    holders = [process for process in find_processes(paths.root) if process.label == HOLDER]
    pids = {process.pid for process in holders}
    inner = next((process for process in holders if process.parent in pids), None)
    return Sandbox(paths=paths, holder=inner) if inner else None
