"""The cluster's programs, built once from pinned Go modules into the cache.

go.mod pins every version and go.sum holds every checksum, so what is built is what was reviewed. A program's
folder in the cache is named by a digest of everything it is made from; another version is another folder.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import REPOSITORY, cache_dir
from tests.cluster.local.progress import say

MODULE: Final = REPOSITORY / "tests" / "cluster" / "binaries"
KUBERNETES_VERSION: Final = "v1.34.4"
HEARTBEAT_SECONDS: Final = 20.0

LINKER_FLAGS: Final = " ".join(
    (
        "-s -w",
        f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "-X k8s.io/component-base/version.gitMajor=1",
        "-X k8s.io/component-base/version.gitMinor=34",
        "-X k8s.io/component-base/version.gitTreeState=clean",
        f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}",
    )
)
"""Without a version the API server calls itself v0.0.0, which charts' `kubeVersion` refuses."""

BUILD_FLAGS: Final = ("-mod=readonly", "-trimpath", "-ldflags", LINKER_FLAGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program of the cluster and the Go package it is built from."""

    name: str
    package: str

    @property
    def is_ours(self) -> bool:
        return self.package.startswith("./")


LIGHT_PROGRAMS: Final = (
    Program(name="etcd", package="go.etcd.io/etcd/server/v3"),
    Program(name="kube-apiserver", package="k8s.io/kubernetes/cmd/kube-apiserver"),
    Program(name="kube-controller-manager", package="k8s.io/kubernetes/cmd/kube-controller-manager"),
    Program(name="kubectl", package="k8s.io/kubernetes/cmd/kubectl"),
    Program(name="helm", package="helm.sh/helm/v3/cmd/helm"),
)
"""What a light cluster runs, and the two tools that talk to it."""

FULL_PROGRAMS: Final = (
    *LIGHT_PROGRAMS,
    Program(name="kube-scheduler", package="k8s.io/kubernetes/cmd/kube-scheduler"),
    Program(name="kubelet", package="k8s.io/kubernetes/cmd/kubelet"),
    Program(name="kube-proxy", package="k8s.io/kubernetes/cmd/kube-proxy"),
    Program(name="pause", package="./pause"),
    Program(name="echo", package="./echo"),
)
"""All programs; `pause` and `echo` are small ones of ours that become images."""


def missing_programs(programs: Iterable[Program]) -> list[Program]:
    """Those that are neither in KUBEBUILDER_ASSETS nor in the cache."""
    return [program for program in programs if find_program(program) is None]


def find_program(program: Program) -> Path | None:
    """A built program: from KUBEBUILDER_ASSETS if that has it, else from the cache."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [Path(assets) / program.name] if assets else []
    candidates.append(cached_path(program))
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def require_programs(programs: Iterable[Program]) -> Mapping[str, Path]:
    """The path of each program by name; builds those that are missing, with progress."""
    wanted = tuple(programs)
    if missing_programs(wanted):
        with _build_lock():
            _build_missing(missing_programs(wanted))
    return {program.name: path for program in wanted if (path := find_program(program))}


def _build_missing(programs: list[Program]) -> None:
    if shutil.which("go") is None:
        raise ClusterError("`go` is not on PATH: install Go 1.24 or newer to build the cluster's programs")
    say(f"Building {len(programs)} programs of the local cluster into {cache_dir() / 'programs'}")
    say("  (once per version; about 12 minutes on 2 cores from nothing, seconds from a warm Go cache)")
    for number, program in enumerate(programs, start=1):
        _build(program, position=f"{number}/{len(programs)}")


def _build(program: Program, *, position: str) -> None:
    target = cached_path(program)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.unfinished")
    started = time.monotonic()
    command = ["nice", "-n", "10", "go", "build", "-v", *BUILD_FLAGS, "-o", str(unfinished), program.package]
    process = subprocess.Popen(
        command,
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output = _follow(process, f"{position} {program.name}")
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode != 0:
        raise ClusterError(f"building {program.name} failed:\n" + "\n".join(output[-20:]))
    unfinished.replace(target)
    say(f"  {position} {program.name}: {time.monotonic() - started:.0f} s")


def _follow(process: "subprocess.Popen[str]", title: str) -> list[str]:
    """Read `go build -v`, which names each package it compiles, and report the count now and then."""
    output: list[str] = []
    reported = started = time.monotonic()
    assert process.stderr is not None, "stderr is a pipe"
    for line in process.stderr:
        output.append(line.rstrip())
        if time.monotonic() - reported > HEARTBEAT_SECONDS:
            reported = time.monotonic()
            say(f"  {title}: {len(output)} packages compiled, {reported - started:.0f} s so far")
    process.wait()
    return output


def cached_path(program: Program) -> Path:
    """Where a program is, or will be, in the cache."""
    return cache_dir() / "programs" / f"{KUBERNETES_VERSION}-{_digest(program)}" / program.name


def _digest(program: Program) -> str:
    """Over all that the program is made from: pinned modules, flags, processor and, for ours, the source."""
    digest = hashlib.sha256(repr((BUILD_FLAGS, platform.machine())).encode())
    sources = [MODULE / "go.mod", MODULE / "go.sum"]
    if program.is_ours:
        sources = sorted((MODULE / program.package).glob("*.go"))
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _build_lock() -> Iterator[None]:
    """Two builds at once would take turns anyway, and twice the memory."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
