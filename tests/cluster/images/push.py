"""Pushes the built images into the registry that a local cluster pulls from."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Protocol

from tests.cluster.images.build import build_images
from tests.support.cache import report


class HasRegistry(Protocol):
    """What pushing needs to know of a cluster."""

    @property
    def registry(self) -> str:
        """`host:port`, the prefix of the images' names in pods."""

    @property
    def netns(self) -> Path:
        """The network namespace in which the registry listens."""


def push_images(cluster: HasRegistry) -> dict[str, str]:
    """Build what changed, push it, and return `{"engine": "<registry>/octavo/engine:<digest>", …}`."""
    return {name: push_image(local, cluster) for name, local in build_images().items()}


def push_image(local: str, cluster: HasRegistry) -> str:
    """The name by which pods pull it."""
    remote = f"{cluster.registry}/{local.removeprefix('localhost/')}"
    started = time.monotonic()
    report(f"Pushing {remote}")
    command = ["nsenter", f"--net={cluster.netns}", "buildah", "push", "--quiet", "--tls-verify=false"]
    # zstd: a third of gzip's time for the engine's 5 GB, and quicker to unpack
    command += ["--format", "oci", "--compression-format", "zstd", "--compression-level", "1"]
    subprocess.run([*command, local, f"docker://{remote}"], check=True)
    report(f"  pushed in {time.monotonic() - started:.1f} s")
    return remote
