"""Tensors of a checkpoint by name, over one or several safetensors files.

A missing shard, a truncated file and a tensor that no file holds are errors that name it: nothing is
ever left at random values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from octavo_engine.errors import ModelFileError

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
SERVED_AS_STORED: Final = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...


class _Reader(Protocol):
    """The part of `safe_open` that is used here; the library itself has no types."""

    def offset_keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where one tensor lies and how large it is."""

    path: Path
    shape: tuple[int, ...]
    num_elements: int


class WeightSource(Protocol):
    """Tensors by the names of Hugging Face checkpoints."""

    tensors: dict[str, StoredTensor]

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor; its shape must be the one that the configuration implies."""
        ...


class WeightFiles:
    """All tensors of some files; reads one at a time, from mapped files."""

    def __init__(self, paths: SequenceOf[Path]) -> None:
        self.tensors: dict[str, StoredTensor] = {}
        self._open = {path: _open(path) for path in paths}
        for path, reader in self._open.items():
            for name in reader.offset_keys():
                if name in self.tensors:
                    raise ModelFileError(
                        f"tensor {name}: in {self.tensors[name].path.name} and in {path.name}"
                    )
                shape = tuple(reader.get_slice(name).get_shape())
                self.tensors[name] = StoredTensor(
                    path=path, shape=shape, num_elements=int(torch.Size(shape).numel())
                )

    @classmethod
    def of_model(cls, model_dir: Path) -> WeightFiles:
        """Those of a model directory, all that its index names."""
        files = cls(_weight_paths(model_dir))
        _require_indexed(model_dir, files.tensors)
        return files

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor, as stored; its shape must be the one that the configuration implies."""
        stored = require_shape(self.tensors, name, shape, where=", ".join(path.name for path in self._open))
        try:
            tensor = self._open[stored.path].get_tensor(name)
        except SafetensorError as error:
            raise ModelFileError(f"{stored.path.name}: cannot read tensor {name}: {error}") from error
        if tensor.dtype not in SERVED_AS_STORED:
            raise ModelFileError(f"tensor {name} in {stored.path.name}: is quantized to {tensor.dtype}")
        return tensor


def require_shape(
    tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], *, where: str
) -> StoredTensor:
    """The tensor of this name, which must be there and have this shape."""
    stored = tensors.get(name)
    if stored is None:
        raise ModelFileError(f"tensor {name}: in none of {where}")
    if stored.shape != shape:
        raise ModelFileError(
            f"tensor {name} in {stored.path.name}: shape {list(stored.shape)}, "
            f"but the configuration implies {list(shape)}"
        )
    return stored


def _weight_paths(model_dir: Path) -> list[Path]:
    """Those that the index names, else the single file, else all that lie there: as they are fetched."""
    index, single = model_dir / INDEX_FILE, model_dir / SINGLE_FILE
    if index.exists():
        paths = [model_dir / name for name in sorted(set(_weight_map(index).values()))]
    else:
        others = [] if single.exists() else sorted(model_dir.glob("*.safetensors"))
        paths = others or [single]
    for path in paths:
        if not path.exists():
            pickled = "; its pickled weights can run code and are not read" if _is_pickled(model_dir) else ""
            raise ModelFileError(f"{path.name}: missing from {model_dir}{pickled}")
    return paths


def _is_pickled(model_dir: Path) -> bool:
    return any(model_dir.glob("pytorch_model*.bin"))


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content = json.loads(index.read_text())
        return {str(name): str(file) for name, file in content["weight_map"].items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelFileError(f"{index.name}: not a safetensors index: {error!r}") from error


def _open(path: Path) -> _Reader:
    try:
        return cast(_Reader, safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path.name}: truncated or not a safetensors file: {error}") from error


def _require_indexed(model_dir: Path, tensors: dict[str, StoredTensor]) -> None:
    index = model_dir / INDEX_FILE
    if not index.exists():
        return
    for name, file in _weight_map(index).items():
        if name not in tensors:
            raise ModelFileError(f"{file}: lacks tensor {name}, which {INDEX_FILE} places there")
