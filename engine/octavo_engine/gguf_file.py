"""GGUF: a model in one file, its configuration, tokenizer and (mostly quantized) weights together.

The format is read by the `gguf` package of llama.cpp, imported only when there is such a file.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from octavo_engine.errors import ModelFileError, UnsupportedModel

SUFFIX: Final = ".gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensor:
    """One stored tensor; `data` is mapped, in the encoding `kind`."""

    shape: tuple[int, ...]
    kind: str
    """F32, F16, BF16, Q8_0, Q4_K and so on."""
    data: Any


class GGUFFile:
    """An opened file: what it says, and what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fields, self.tensors = _read(path)
        if self.integer("split.count", 1) > 1:
            raise UnsupportedModel(f"split.count: {path.name} is one file of several; merge them first")

    @property
    def names(self) -> frozenset[str]:
        """Of all metadata fields."""
        return frozenset(self._fields)

    def get(self, name: str) -> object:
        """A metadata field as a plain value, None where it is absent."""
        field = self._fields.get(name)
        return None if field is None else field.contents()

    def integer(self, name: str, default: int) -> int:
        """A whole number, or the default where it is absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, int):
            raise UnsupportedModel(f"{name}: must be one integer in {self.path.name}, got {value!r}")
        return default if value is None else value


def find_gguf(model: Path) -> Path | None:
    """The GGUF file that a `--model` means: itself, or the only one in a folder without safetensors."""
    if not model.is_dir():
        return model if model.suffix == SUFFIX else None
    if any(model.glob("*.safetensors*")):
        return None
    files = sorted(model.glob(f"*{SUFFIX}"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ModelFileError(f"{model}: holds several GGUF files; name one of {names}")
    return files[0] if files else None


def _read(path: Path) -> tuple[Mapping[str, Any], dict[str, GGUFTensor]]:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelFileError(f"{path.name}: reading GGUF needs the package gguf: {error}") from error
    try:
        reader = GGUFReader(path)
        return reader.fields, {
            tensor.name: GGUFTensor(
                shape=tuple(reversed(tensor.shape.tolist())), kind=tensor.tensor_type.name, data=tensor.data
            )
            for tensor in reader.tensors
        }
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelFileError(f"{path.name}: truncated or not a GGUF file: {error}") from error
