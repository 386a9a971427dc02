"""An image that holds one static program, such as the sandbox of a pod, made without any image tool."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Processor as the kernel calls it → as images call it."""


def write_program_image(archive: Path, *, image: str, program: Path) -> None:
    """Write an archive (as `docker save` does) of an image that holds and runs one static program."""
    layer = _layer(program)
    layer_digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "config.json", config)
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    """Without times or owners, so that the same content has the same digest."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
