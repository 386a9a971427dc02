"""Helm, run on the project's chart; its program is one of the local cluster's pinned binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.local.binaries import LIGHT_PROGRAMS, find_program
from tests.install.paths import CHART, NAMESPACE, RELEASE


class HelmRefused(Exception):
    """Helm exited non-zero; the text is what it said."""


def find_helm() -> Path:
    """The helm to use: $HELM, else the local cluster's own, else the one on PATH."""
    if named := os.environ.get("HELM"):
        return Path(named)
    built = {program.name: find_program(program) for program in LIGHT_PROGRAMS}["helm"]
    if found := built or shutil.which("helm"):
        return Path(found)
    raise FileNotFoundError(
        "helm: not found. Run `python -m tests.cluster.local binaries`, or set HELM to a helm program."
    )


def run_helm(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run helm and return what it printed; its own words are raised when it fails."""
    done = subprocess.run(
        [str(find_helm()), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if done.returncode:
        raise HelmRefused(f"helm {arguments[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def template(*arguments: str) -> str:
    """The chart rendered for the usual release and namespace, with Kubernetes 1.34's API versions."""
    return run_helm(
        "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.34.0", *arguments
    )
