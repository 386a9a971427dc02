"""What words like `main` mean now: commit, digest of the files, size, and the numbers that memory depends on.

A resolver pod runs this and reports by its termination message, of which the kubelet keeps 4096 bytes;
so config.json goes along deflated, and its reader computes whatever it needs from it.
"""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from octavo.architecture import parse_architecture
from octavo.errors import InvalidConfig, Unsupported
from octavo.kv_sizing import kv_bytes_per_token
from octavo.weights import params_total, weights_bytes
from octavo_engine.fetching.fetch import choose_files, get_file, manifest_of
from octavo_engine.fetching.hub import Hub, find_commit
from octavo_engine.fetching.manifest import Manifest
from octavo_engine.fetching.selection import CONFIG_FILE

MAX_REPORT_BYTES: Final = 4096
"""The kubelet keeps no more of a termination message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A repository at one commit, as the hub lists it."""

    requested_revision: str
    manifest: Manifest
    config: Mapping[str, Any]

    @property
    def report(self) -> dict[str, Any]:
        """For a program; `config` is base64 of the zlib-deflated file, left out only if it is too large."""
        facts: dict[str, Any] = {
            "repository": self.manifest.repository,
            "requested_revision": self.requested_revision,
            "commit": self.manifest.commit,
            "manifest_digest": self.manifest.digest,
            "num_files": len(self.manifest.files),
            "size_bytes": sum(file.size for file in self.manifest.files),
            "architecture": architecture_numbers(self.config),
        }
        whole = {**facts, "config": deflated(self.config)}
        return whole if len(json.dumps(whole)) <= MAX_REPORT_BYTES else facts


def resolve(repository: str, revision: str, *, endpoint: str | None = None) -> Resolution:
    """Ask the hub; raises FetchFailed, or InvalidConfig for a config.json that cannot be read."""
    commit = find_commit(repository, revision, endpoint=endpoint)
    hub = Hub(repository, commit, endpoint=endpoint)
    with tempfile.TemporaryDirectory(prefix="octavo-resolve-") as name:
        folder = Path(name)
        selection = choose_files(folder, hub)
        get_file(folder, hub, next(file for file in selection.wanted if file.path == CONFIG_FILE))
        config = _read_config(folder / CONFIG_FILE)
    return Resolution(
        requested_revision=revision, manifest=manifest_of(repository, commit, selection), config=config
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidConfig(f"{CONFIG_FILE}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{CONFIG_FILE}: must hold a JSON object")
    return value


def architecture_numbers(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wants to see of a model; or why its memory is not known."""
    arch = parse_architecture(config)
    if isinstance(arch, Unsupported):
        return {"model_type": arch.model_type, "unsupported": arch.reason}
    return {
        "model_type": arch.model_type,
        "num_layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "vocab_size": arch.vocab_size,
        "max_position_embeddings": arch.max_position_embeddings,
        "dtype": arch.dtype,
        "parameters": params_total(arch),
        "weights_bytes": weights_bytes(arch),
        "kv_bytes_per_token": kv_bytes_per_token(arch, kv_dtype="auto"),
        "confidence": arch.confidence,
    }


def deflated(config: Mapping[str, Any]) -> str:
    """A configuration as text of a size that does not grow with repetition.

    >>> inflated(deflated({"layer_types": ["full"] * 60})) == {"layer_types": ["full"] * 60}
    True
    """
    compact = json.dumps(config, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(compact, level=9)).decode()


def inflated(text: str) -> dict[str, Any]:
    """The configuration back."""
    return dict(json.loads(zlib.decompress(base64.b64decode(text))))
