"""What a full cluster needs of the machine: root, and a few of Debian's packages."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.progress import say, step

PACKAGE_OF: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "socat": "socat",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
    "docker-registry": "docker-registry",
}
"""Program → the Debian package that brings it."""

POLICY: Final = Path("/usr/sbin/policy-rc.d")
"""Debian asks this program before it starts a package's service; exit code 101 means no."""


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not on this machine."""
    return sorted({package for program, package in PACKAGE_OF.items() if shutil.which(program) is None})


def require_root_and_packages() -> None:
    """Raise unless a full cluster can be started here."""
    if os.geteuid() != 0:
        raise ClusterError(
            "a full cluster makes namespaces, mounts and cgroups: run it as root, "
            "or start a light cluster (`up --light`), which needs none of that"
        )
    if missing := missing_packages():
        raise ClusterError(
            f"missing on this machine: {', '.join(missing)}. "
            "`python -m tests.cluster.local prepare` installs them with apt-get"
        )


def install_packages() -> None:
    """Install what is missing, and say so first."""
    missing = missing_packages()
    if not missing:
        return
    if os.geteuid() != 0:
        raise ClusterError(f"installing {', '.join(missing)} needs root")
    if shutil.which("apt-get") is None:
        raise ClusterError(f"no apt-get here: install {', '.join(missing)} by hand (see PACKAGE_OF)")
    say(f"Installing Debian packages for the local cluster: {' '.join(missing)}")
    say("  (the services that some of them bring are not started)")
    with step("apt-get update"):
        _apt_get("update")
    with step("apt-get install"), _services_not_started():
        _apt_get("install", "--yes", "--no-install-recommends", *missing)


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "--quiet", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise ClusterError(
            f"`apt-get {' '.join(arguments)}` failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        )


@contextlib.contextmanager
def _services_not_started() -> Iterator[None]:
    """Keep containerd and the registry from starting as services: a cluster starts its own."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
