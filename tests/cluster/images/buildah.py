"""The few buildah commands that building and pushing need."""

from __future__ import annotations

import shutil
import subprocess


class ToolMissing(RuntimeError):
    """A program that images are made with is not installed."""


def require_tools() -> None:
    missing = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
    if missing:
        raise ToolMissing(f"images need {' and '.join(missing)}: apt-get install {' '.join(missing)}")


def buildah(*arguments: str) -> str:
    """Run buildah and return what it printed; its own words are in the error when it fails."""
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"buildah {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def image_exists(image: str) -> bool:
    found = subprocess.run(["buildah", "inspect", "--type", "image", image], capture_output=True, check=False)
    return found.returncode == 0


def image_id(image: str) -> str:
    return buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", image)


def tags_of(repository: str) -> list[str]:
    """Every reference `repository:tag` in the local store."""
    listed = buildah("images", "--format", "{{.Name}}:{{.Tag}}")
    return [line for line in listed.splitlines() if line.rpartition(":")[0] == repository]
