"""Builds the engine's and the operator's image when one of their inputs changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tests.cluster.images.base import base_image
from tests.cluster.images.buildah import buildah, image_exists, image_id, require_tools, tags_of
from tests.support.cache import cache_root, exclusively, report

ROOT: Final = Path(__file__).resolve().parents[3]
SHARED_INPUTS: Final = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "core/octavo")
PIP_SETTINGS: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
TELLING: Final = re.compile(
    r"^(\[\d+/\d+\] )?(STEP \d+/\d+: RUN |COMMIT |Collecting torch|Installing collected|Error|ERROR)"
)
"""The lines of a build's output that show how far it is."""
CODE_STAGE: Final = "octavo.dev/stage=code"
"""Marks the layers from which only the installed code is copied into an image."""
MAX_CODE_STAGES: Final = 50
"""How many such leftovers may lie about, at some megabytes each, before they are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image of the project: its Dockerfile and what the Dockerfile copies."""

    name: str
    dockerfile: str
    sources: tuple[str, ...]

    @property
    def repository(self) -> str:
        return f"localhost/octavo/{self.name}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.dockerfile, *SHARED_INPUTS, *self.sources)


IMAGES: Final = (
    Image(name="operator", dockerfile="operator/Dockerfile", sources=("operator/octavo_operator",)),
    Image(name="engine", dockerfile="engine/Dockerfile", sources=("engine/octavo_engine",)),
)


def build_images() -> dict[str, str]:
    """Build what changed; `{"engine": "localhost/octavo/engine:<digest>", "operator": …}`.

    The tag `dev` follows. The first build installs torch: about six minutes on two cores.
    """
    require_tools()
    with exclusively(cache_root() / "images.lock"):
        base = base_image()
        return {image.name: _ensure(image, base) for image in IMAGES}


def _ensure(image: Image, base: str) -> str:
    reference = f"{image.repository}:{content_digest(image, base_id=image_id(base))}"
    if not image_exists(reference):
        _build(image, base, reference)
    buildah("tag", reference, f"{image.repository}:dev")
    _remove_superseded(image, reference)
    return reference


def content_digest(image: Image, *, base_id: str, root: Path = ROOT) -> str:
    """Changes when, and only when, a file that the image is made of changes."""
    digest = hashlib.sha256(base_id.encode())
    for path in input_files(image, root):
        digest.update(f"\0{path.relative_to(root)}\0{path.stat().st_mode & 0o111:o}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def input_files(image: Image, root: Path) -> Iterator[Path]:
    for name in image.inputs:
        place = root / name
        yield from [place] if place.is_file() else sorted(_files_below(place))


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _build(image: Image, base: str, reference: str) -> None:
    command = ["buildah", "bud", "--layers", "--isolation", "chroot", "--network", "host"]
    command += ["--build-arg", f"BASE={base}", *pip_arguments(os.environ)]
    command += ["--file", image.dockerfile, "--tag", reference, "."]
    log = cache_root() / f"image-{image.name}.log"
    report(f"Building {reference} (all output: {log})")
    started = time.monotonic()
    with log.open("w") as file:
        _run_telling(command, file, started)
    report(f"  built in {time.monotonic() - started:.1f} s")


def pip_arguments(environment: Mapping[str, str]) -> list[str]:
    """This machine's index settings and certificates for pip in the build; none stays in the image."""
    settings = [name for name in PIP_SETTINGS if environment.get(name)]
    arguments = [word for name in settings for word in ("--build-arg", f"{name}={environment[name]}")]
    certificates = environment.get("PIP_CERT") or environment.get("SSL_CERT_FILE")
    if certificates:
        # Mounted for the time of the build, over the file that every Debian image has at this place.
        arguments += [
            "--volume",
            f"{certificates}:{CERTIFICATES}:ro",
            "--build-arg",
            f"PIP_CERT={CERTIFICATES}",
        ]
    return arguments


def _run_telling(command: list[str], log: TextIO, started: float) -> None:
    """Run a build, keep its whole output in `log` and show the lines that tell how far it is."""
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None, "asked for a pipe"
        for line in run.stdout:
            log.write(line)
            if TELLING.match(line):
                report(f"  {time.monotonic() - started:6.1f} s  {line.rstrip()[:120]}")
    if run.returncode != 0:
        log.flush()
        tail = Path(log.name).read_text().splitlines()[-15:]
        raise RuntimeError("\n".join([f"the build failed; its last lines (all: {log.name}):", *tail]))


def _remove_superseded(image: Image, kept: str) -> None:
    for reference in tags_of(image.repository):
        if reference not in (kept, f"{image.repository}:dev"):
            with contextlib.suppress(RuntimeError):  # in use by another run; a later build removes it
                buildah("rmi", reference)
    left_over = buildah("images", "--quiet", "--filter", "dangling=true", "--filter", f"label={CODE_STAGE}")
    if len(left_over.split()) > MAX_CODE_STAGES:
        buildah("rmi", *left_over.split())
