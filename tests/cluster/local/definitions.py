"""Definitions of kinds that other projects own (Gateway API, KEDA and others), for the tests.

They are files of Go modules, taken once from the module proxy into the cache: a version and a checksum,
as with the programs. `go mod download` compares the checksum with the public log; we compare it with the pin.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import cache_dir
from tests.cluster.local.progress import say
from tests.support.cache import cached_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Some CustomResourceDefinitions of one pinned module."""

    module: str
    version: str
    checksum: str
    """As go.sum writes it."""
    files: tuple[str, ...]
    """Paths inside the module."""

    @property
    def folder(self) -> Path:
        return cache_dir() / "definitions" / f"{self.module.rpartition('/')[2]}-{self.version}"

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / Path(file).name for file in self.files)


GATEWAY_API: Final = Definitions(
    module="sigs.k8s.io/gateway-api",
    version="v1.4.1",
    checksum="h1:NPxFutNkKNa8UfLd2CMlEuhIPMQgDQ6DXNKG9sHbJU8=",
    files=("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
)
INFERENCE_EXTENSION: Final = Definitions(
    module="sigs.k8s.io/gateway-api-inference-extension",
    version="v1.3.1",
    checksum="h1:Tpjo2frgcdUUeqPWcIWter2a7GCHBrNyYBkK1Em1u+8=",
    files=("config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",),
)
ALL_DEFINITIONS: Final = (GATEWAY_API, INFERENCE_EXTENSION)
KEDA: Final = Definitions(
    module="github.com/kedacore/keda/v2",
    version="v2.18.1",
    checksum="h1:h6bRt/IOxxtZpJlHSqhdH/lcInH7Z9obxg/JvWOmGAw=",
    files=("config/crd/bases/keda.sh_scaledobjects.yaml",),
)
PROMETHEUS_OPERATOR: Final = Definitions(
    module="github.com/prometheus-operator/prometheus-operator",
    version="v0.83.0",
    checksum="h1:qAKbm+45fqNGcn9sGTa1Ae2TM3KZuYA/uyoD2QKi9+o=",
    files=(
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
)
AUTOSCALING_DEFINITIONS: Final = (KEDA, PROMETHEUS_OPERATOR)
"""Nothing of ours reads these kinds; our samples are of them."""


def missing_definitions(wanted: Iterable[Definitions] = ALL_DEFINITIONS) -> list[Definitions]:
    return [one for one in wanted if not one.folder.is_dir()]


def require_definitions(wanted: Iterable[Definitions] = ALL_DEFINITIONS) -> None:
    """Fetch those that the cache lacks."""
    for one in missing_definitions(wanted):
        say(f"  {one.module} {one.version}: fetching definitions")
        fetch(one)


def fetch(wanted: Definitions) -> None:
    def fill(folder: Path) -> None:
        module = download(wanted)
        for file in wanted.files:
            shutil.copyfile(module / file, folder / Path(file).name)

    cached_folder(wanted.folder, fill)


def download(wanted: Definitions) -> Path:
    """The module's folder in Go's own cache."""
    if shutil.which("go") is None:
        raise ClusterError("`go` is not on PATH: install Go 1.24 or newer to fetch the definitions")
    command = ["go", "mod", "download", "-json", f"{wanted.module}@{wanted.version}"]
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment, check=False)
    answer = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in answer:
        reason = answer.get("Error") or done.stderr.strip()
        raise ClusterError(f"{wanted.module} {wanted.version} could not be fetched: {reason}")
    if answer["Sum"] != wanted.checksum:
        raise ClusterError(
            f"{wanted.module} {wanted.version} has checksum {answer['Sum']}, pinned is {wanted.checksum}"
        )
    return Path(answer["Dir"])
