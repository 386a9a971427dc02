"""What words like `main` mean now: commit, digest of the files, size, and what memory depends on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from octavo import engine_contract as contract
from octavo.architecture import parse_architecture
from octavo.errors import InvalidConfig, Unsupported
from octavo.kv_sizing import kv_bytes_per_token
from octavo.model_files import CONFIG_FILE, ModelIncomplete
from octavo.model_report import ModelReport
from octavo.model_source import ModelSource, is_commit_of
from octavo.weights import params_total, weights_bytes
from octavo_engine.fetching.download import Download
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.fetch import choose_files
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.manifest import Manifest, build_manifest
from octavo_engine.fetching.mounted import read_mounted, read_small
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.reading import unreadable

MAX_CONFIG_BYTES: Final = 4 << 20
"""The largest that are published have some 100 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A model at one commit."""

    requested_revision: str
    manifest: Manifest
    config: Mapping[str, Any]

    @property
    def report(self) -> ModelReport:
        """For the operator."""
        return ModelReport(
            commit=self.manifest.commit,
            manifest_digest=self.manifest.digest,
            size_bytes=self.manifest.num_bytes,
            config=self.config,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """For a person, or a program."""
        return {
            "origin": self.manifest.origin,
            "requested_revision": self.requested_revision,
            "commit": self.manifest.commit,
            "manifest_digest": self.manifest.digest,
            "num_files": len(self.manifest.files),
            "size_bytes": self.manifest.num_bytes,
            "architecture": architecture_numbers(self.config),
        }


def resolve_at_hub(hub: Hub, revision: str) -> Resolution:
    """Ask the hub; raises FetchFailed, or InvalidConfig for a config.json that cannot be read."""
    commit = hub.find_commit(revision)
    with tempfile.TemporaryDirectory(prefix="octavo-resolve-") as name:
        download = Download(hub, commit, Path(name))
        files = choose_files(download)
        config_file = next(file for file in files if file.path == CONFIG_FILE)
        if config_file.size > MAX_CONFIG_BYTES:
            raise InvalidConfig(f"{CONFIG_FILE}: has {config_file.size} bytes; no model's is as large")
        download.get(config_file)
        config = parse_config((download.folder / CONFIG_FILE).read_bytes())
    manifest = build_manifest(hub.repository, commit, files)
    return Resolution(requested_revision=revision, manifest=manifest, config=config)


def resolve_mounted(
    source: ModelSource, uri: str, revision: str, mount: Path, progress: Progress
) -> Resolution:
    """Read the mounted files, all of them; pinned words must be what they are, others mean what is there."""
    found = read_mounted(source, mount, progress)
    if is_commit_of(source, revision) and revision != found.digest:
        raise FetchFailed(
            contract.REASON_DIGEST_MISMATCH,
            f"{uri}: its files have the manifest digest {found.digest}, and {revision} is asked for",
        )
    try:
        config = parse_config(read_small(mount, found.folder / CONFIG_FILE, MAX_CONFIG_BYTES))
    except ModelIncomplete as error:
        raise InvalidConfig(str(error)) from error
    except OSError as error:
        raise unreadable(found.folder / CONFIG_FILE, error) from error
    manifest = build_manifest(uri, found.digest, found.files)
    return Resolution(requested_revision=revision, manifest=manifest, config=config)


def parse_config(content: bytes) -> Mapping[str, Any]:
    """A JSON object; raises InvalidConfig."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
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
