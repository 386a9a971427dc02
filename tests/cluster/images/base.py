"""A Debian image with Python, standing in for the public one that the Dockerfiles name."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cluster.images.buildah import buildah, image_exists
from tests.support.cache import cache_root, cached_folder, report, step

SUITE: Final = "bookworm"
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates", "libgomp1")
LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_image() -> str:
    """The base image's reference; made from Debian's packages by the first call (under a minute)."""
    key = hashlib.sha256(repr((SUITE, PACKAGES, LEFT_OUT)).encode()).hexdigest()[:12]
    image = f"localhost/octavo/base:{key}"
    if not image_exists(image):
        folder = cached_folder(_images_cache() / f"debian-python-{key}", _bootstrap)
        with step("importing the base image"):
            _import(folder / "rootfs.tar", image)
    return image


def _images_cache() -> Path:
    folder = cache_root() / "images"
    folder.mkdir(exist_ok=True)
    return folder


def _bootstrap(folder: Path) -> None:
    report(f"Making the base image: Debian {SUITE} with {', '.join(PACKAGES)} (once)")
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    with step("installing Debian's packages into it"):
        subprocess.run([*command, SUITE, str(folder / "rootfs.tar")], check=True, stdout=sys.stderr)


def _import(archive: Path, image: str) -> None:
    container = buildah("from", "scratch")
    try:
        buildah("add", container, str(archive), "/")
        buildah("config", "--env", f"PATH={SEARCH_PATH}", "--cmd", "python3", container)
        buildah("commit", "--quiet", container, image)
    finally:
        buildah("rm", container)
