"""Which files of a repository the engine needs. Pure: a listing in, a choice out.

Repositories often hold the weights several times (PyTorch pickles, GGUF, ONNX, the original format);
only safetensors at the top are loaded, and with an index exactly the shards that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from octavo.engine_contract import REASON_FILE_MISSING
from octavo_engine.fetching.errors import FetchFailed

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_WEIGHTS: Final = "model.safetensors"
WEIGHTS_SUFFIX: Final = ".safetensors"
PLAIN_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".tiktoken")
"""Configuration, tokenizers of every kind, chat templates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file as the hub lists it at one commit."""

    path: str
    size: int
    digest: str
    """`sha256:…` of an LFS file, `git-sha1:…` of a plain one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to fetch and what to leave."""

    wanted: tuple[RemoteFile, ...]
    skipped: tuple[RemoteFile, ...]

    @property
    def num_bytes(self) -> int:
        """Of the wanted files."""
        return sum(file.size for file in self.wanted)


def has_index(listing: Sequence[RemoteFile]) -> bool:
    """Whether the weights are sharded under an index, which must then be read before selecting."""
    return any(file.path == INDEX_FILE for file in listing)


def select_files(listing: Sequence[RemoteFile], index: Mapping[str, object] | None) -> Selection:
    """The files to fetch; raises FetchFailed if the repository lacks one that it must have.

    `index` is the contents of INDEX_FILE, where the listing has one.
    """
    paths = {file.path for file in listing}
    _require(CONFIG_FILE in paths, f"the repository has no {CONFIG_FILE}: it is not a model's")
    weights = _weights(paths, index)
    wanted = {path for path in paths if _is_plain(path)} | weights
    return Selection(
        wanted=tuple(file for file in listing if file.path in wanted),
        skipped=tuple(file for file in listing if file.path not in wanted),
    )


def _is_plain(path: str) -> bool:
    return "/" not in path and path.endswith(PLAIN_SUFFIXES)


def _weights(paths: set[str], index: Mapping[str, object] | None) -> set[str]:
    if index is not None:
        shards = _shards(index)
        missing = sorted(shards - paths)
        _require(not missing, f"{INDEX_FILE} names files that the repository lacks: {', '.join(missing[:5])}")
        return shards
    if SINGLE_WEIGHTS in paths:
        return {SINGLE_WEIGHTS}
    weights = {path for path in paths if "/" not in path and path.endswith(WEIGHTS_SUFFIX)}
    _require(
        bool(weights),
        "the repository has no safetensors at its top; choose one that holds the model in that format",
    )
    return weights


def _shards(index: Mapping[str, object]) -> set[str]:
    weight_map = index.get("weight_map")
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    _require(bool(names), f"{INDEX_FILE} has no weight_map")
    for name in names:
        is_plain_name = isinstance(name, str) and "/" not in name and name.endswith(WEIGHTS_SUFFIX)
        _require(is_plain_name, f"{INDEX_FILE} names {name!r}, which is no safetensors file at the top")
    return {str(name) for name in names}


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise FetchFailed(REASON_FILE_MISSING, message)
