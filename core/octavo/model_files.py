"""Which files of a model are needed, and the one digest that stands for all of them.

Repositories often hold the weights several times (PyTorch pickles, GGUF, ONNX, the original format);
only safetensors at the top are loaded, and with an index exactly the shards that it names.

The *manifest digest* is the SHA-256 of one line of JSON per needed file, `[path, size, digest]`, in
order of path: the same files have the same digest wherever they lie.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from octavo.engine_contract import REASON_FILE_MISSING
from octavo.errors import OctavoError

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_WEIGHTS: Final = "model.safetensors"
WEIGHTS_SUFFIX: Final = ".safetensors"
GGUF_SUFFIX: Final = ".gguf"
PLAIN_SUFFIXES: Final = (".json", ".jinja", ".txt", ".model", ".tiktoken")
"""Configuration, tokenizers of every kind, chat templates."""
MAX_INDEX_BYTES: Final = 64 << 20
"""The largest that are published, of mixtures with hundreds of experts, have 10 MB."""


class ModelIncomplete(OctavoError):
    """Some file that a model must have is not there."""

    reason = REASON_FILE_MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file. `digest` is `sha256:…`, or of a hub's plain file `git-sha1:…` (a git blob's)."""

    path: str
    size: int
    digest: str


def manifest_digest(files: Iterable[ModelFile]) -> str:
    """Of the needed files.

    >>> manifest_digest([])
    'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
    """
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(json.dumps([file.path, file.size, file.digest]).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def needed_paths(paths: Iterable[str], index: Mapping[str, object] | None) -> frozenset[str]:
    """The files that the engine needs, of all that there are; raises ModelIncomplete.

    `index` is the contents of INDEX_FILE, where there is one.
    """
    known = frozenset(paths)
    _require(CONFIG_FILE in known, f"there is no {CONFIG_FILE}: this is not a model")
    return frozenset(path for path in known if _is_plain(path)) | _weights(known, index)


def is_read_by_engine(name: str) -> bool:
    """Whether a file at the top of a folder would be a part of the model that is served from it."""
    return _is_plain(name) or _is_top_weights(name) or name.endswith(GGUF_SUFFIX)


def _is_plain(path: str) -> bool:
    return "/" not in path and not path.startswith(".") and path.endswith(PLAIN_SUFFIXES)


def _weights(paths: frozenset[str], index: Mapping[str, object] | None) -> frozenset[str]:
    if index is not None:
        shards = _shards(index)
        missing = sorted(shards - paths)
        _require(not missing, f"{INDEX_FILE} names files that are not there: {', '.join(missing[:5])}")
        return shards
    if SINGLE_WEIGHTS in paths:
        return frozenset({SINGLE_WEIGHTS})
    weights = frozenset(path for path in paths if _is_top_weights(path))
    _require(
        bool(weights), "there are no safetensors at the top; choose a model that is stored in that format"
    )
    return weights


def _is_top_weights(path: object) -> bool:
    return (
        isinstance(path, str)
        and "/" not in path
        and not path.startswith(".")
        and path.endswith(WEIGHTS_SUFFIX)
    )


def _shards(index: Mapping[str, object]) -> frozenset[str]:
    weight_map = index.get("weight_map")
    names: Sequence[object] = list(weight_map.values()) if isinstance(weight_map, Mapping) else []
    _require(bool(names), f"{INDEX_FILE} has no weight_map")
    for name in names:
        _require(
            _is_top_weights(name), f"{INDEX_FILE} names {name!r:.80}, which is no safetensors file at the top"
        )
    return frozenset(str(name) for name in names)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ModelIncomplete(message)


def parse_index(content: bytes) -> Mapping[str, object]:
    """The contents of INDEX_FILE; raises ModelIncomplete."""
    try:
        index = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelIncomplete(f"{INDEX_FILE} is not JSON: {error}") from error
    _require(isinstance(index, dict), f"{INDEX_FILE} is no JSON object")
    return dict(index)
